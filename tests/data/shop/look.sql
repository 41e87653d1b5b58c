\set customer random(1, 200)
SELECT count(*), :scale FROM purchase WHERE customer_id = :customer;
