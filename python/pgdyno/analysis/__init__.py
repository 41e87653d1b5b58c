"""Analysis of results files: effects, intervals, verdicts, latencies. Contacts no server."""
