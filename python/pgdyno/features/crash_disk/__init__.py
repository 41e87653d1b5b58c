"""Sites of crashes: a disk whose power can be cut, a real machine, a standby."""
