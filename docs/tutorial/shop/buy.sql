\set customer random(1, 100000)
\set product random(1, 10000)
BEGIN;
INSERT INTO orders (customer_id, region, status, ordered_at) VALUES (:customer, 3, 'open', localtimestamp) RETURNING id \gset
INSERT INTO order_line (order_id, product_id, amount, price) VALUES (:id, :product, 1, 9.90);
UPDATE product SET stock = stock - 1 WHERE id = :product;
COMMIT;
