PREPARE market (integer) AS SELECT productid, customerid, price FROM {table} WHERE productid >= $1 ORDER BY productid, customerid, price LIMIT 10
