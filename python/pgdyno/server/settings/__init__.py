"""Settings: what they are called, what they may be, what is in effect, and what they keep or give up."""
