"""The highest rate of an open loop at which an arm keeps a latency limit."""
