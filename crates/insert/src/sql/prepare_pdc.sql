PREPARE pdc (integer) AS SELECT price, dateandtime, customerid FROM {table} WHERE price >= $1 ORDER BY price, dateandtime, customerid LIMIT 10
