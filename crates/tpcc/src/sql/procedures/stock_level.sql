-- The Stock-Level transaction (clause 2.8): items of the district's last 20 orders with stock under the threshold.
-- The orders are listed and not given as a range: the planner has no statistics of the newest orders, takes a plan for
-- their range to be cheaper than one for any range, and would plan anew on every call.
CREATE OR REPLACE FUNCTION tpcc_stock_level(
    home_w_id integer,
    home_d_id smallint,
    threshold smallint
)
RETURNS bigint
LANGUAGE plpgsql
AS $$
BEGIN
    RETURN (
        SELECT count(DISTINCT s_i_id)
          FROM order_line
          JOIN stock ON s_w_id = home_w_id AND s_i_id = ol_i_id
         WHERE ol_w_id = home_w_id AND ol_d_id = home_d_id
           AND ol_o_id = ANY (ARRAY(
                   SELECT generate_series(d_next_o_id - 20, d_next_o_id - 1)
                     FROM district
                    WHERE d_w_id = home_w_id AND d_id = home_d_id
               ))
           AND s_quantity < threshold
    );
EXCEPTION --[if subtransactions]
    WHEN serialization_failure OR deadlock_detected OR no_data_found THEN --[if subtransactions]
        RAISE; --[if subtransactions]
END
$$
