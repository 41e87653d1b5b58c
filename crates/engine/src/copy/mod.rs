//! The loader: rows of a workload into COPY BINARY, over several connections.
