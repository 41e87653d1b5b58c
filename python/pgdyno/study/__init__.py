"""The plan: arms as asked for, sizes that fit this machine, blocks and their slices."""
