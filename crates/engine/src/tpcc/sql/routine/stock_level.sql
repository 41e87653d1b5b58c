-- The Stock-Level transaction (clause 2.8): items of the district's last 20 orders with stock under the threshold.
CREATE OR REPLACE FUNCTION tpcc_stock_level(
    home_w_id integer,
    home_d_id smallint,
    threshold smallint
)
RETURNS integer
LANGUAGE plpgsql
AS $$
DECLARE
    next_order_id integer;
    low_stock     integer;
BEGIN
    SELECT d_next_o_id
      INTO STRICT next_order_id
      FROM district
     WHERE d_w_id = home_w_id AND d_id = home_d_id;

    SELECT count(DISTINCT s_i_id)
      INTO low_stock
      FROM order_line
      JOIN stock ON s_w_id = home_w_id AND s_i_id = ol_i_id
     WHERE ol_w_id = home_w_id AND ol_d_id = home_d_id
       AND ol_o_id >= next_order_id - 20 AND ol_o_id < next_order_id
       AND s_quantity < threshold;
    RETURN low_stock;
END
$$
