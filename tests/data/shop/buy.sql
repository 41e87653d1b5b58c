\set customer random(1, 200)
\set product random(1, 50)
INSERT INTO purchase (customer_id, product_id, amount, bought_on) VALUES (:customer, :product, 1, '2026-03-01');
