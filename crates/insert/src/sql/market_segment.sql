CREATE INDEX {table}_marketsegment ON {table} (productid, customerid, price)
