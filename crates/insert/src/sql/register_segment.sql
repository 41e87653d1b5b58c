CREATE INDEX {table}_registersegment ON {table} (cashregisterid, customerid, price)
