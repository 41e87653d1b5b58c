INSERT INTO customer SELECT n, 'c' || n || '@example.org', jsonb_build_object('city', 'c' || n % 7) FROM generate_series(1, 200) AS n;
INSERT INTO product SELECT n, 'product ' || n, 100 FROM generate_series(1, 50) AS n;
INSERT INTO sold SELECT id, 0 FROM product;
INSERT INTO purchase (customer_id, product_id, amount, bought_on)
SELECT 1 + n % 200, 1 + n % 50, 1 + n % 3, date '2025-06-01' + n % 400 FROM generate_series(1, 2000) AS n;
