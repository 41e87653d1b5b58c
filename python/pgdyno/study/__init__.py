"""Plan of a study: arms, sizes that fit this machine, blocks and slices."""
