"""Features beyond the comparison of servers, one folder each."""
