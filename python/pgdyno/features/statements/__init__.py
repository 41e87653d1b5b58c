"""Scripts from the statements of a running database: parse, find the columns of parameters, draw values."""
