"""The workload tpcc, seen from outside the engine: what its dataset holds and the checks after a trial."""
