"""What the program can do beyond the comparison of servers. Each folder is one feature."""
