-- every sale is counted; 'a;b'
SELECT product_id FROM sold JOIN (SELECT product_id, sum(amount) AS amount FROM purchase GROUP BY 1) AS p
  USING (product_id) WHERE p.amount <> sold.amount -- comment
;
SELECT 1 FROM product WHERE stock < 0
