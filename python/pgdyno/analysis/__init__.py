"""From evidence to findings: effects, intervals, verdicts, latencies. Reads evidence only, never a server."""
