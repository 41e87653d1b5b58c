//! The workload derived from TPC-C: random numbers, population, transactions.
