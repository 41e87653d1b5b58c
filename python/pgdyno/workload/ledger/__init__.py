"""The ledger: transactions that leave a trace, and the audit of what is left of them after a crash."""
