\set customer random(1, 100000)
\set category random(0, 39)
SELECT email FROM customer WHERE id = :customer \gset
SELECT id, name, region FROM customer WHERE email = ':email';
SELECT id, title, price FROM product WHERE category = :category ORDER BY price LIMIT 20;
SELECT id, status, ordered_at FROM orders WHERE customer_id = :customer ORDER BY ordered_at DESC LIMIT 10;
