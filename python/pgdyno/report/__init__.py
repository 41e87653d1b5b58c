"""Reports: one model of the text, tables and charts, and one renderer per output format."""
