PREPARE point (bigint, bigint, bigint, bigint, bigint, bigint, bigint, bigint, bigint, bigint) AS
SELECT transactionid, productid, data FROM {table} WHERE transactionid IN ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
