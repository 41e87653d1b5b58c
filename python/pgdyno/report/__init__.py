"""From findings to something to read: one model of what is said, and a renderer for each form."""
