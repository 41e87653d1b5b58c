CREATE INDEX {table}_pdc ON {table} (price, dateandtime, customerid)
