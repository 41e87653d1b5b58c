-- Order-Status with the signature of HammerDB: a row for each line, with the columns that it asks for.
CREATE FUNCTION ostat(
    home_w_id     integer,
    home_d_id     integer,
    customer_id   integer,
    is_by_name    integer,
    customer_name varchar
)
RETURNS SETOF record
LANGUAGE plpgsql
AS $$
BEGIN
    RETURN QUERY
        SELECT item_ids[line], supply_w_ids[line], quantities[line], amounts[line], delivered_at[line],
               found_c_id, customer_last, customer_first, customer_middle::varchar, customer_balance,
               order_id, entered_at::timestamp, carrier::integer
          FROM tpcc_order_status(
                   home_w_id, home_d_id::smallint, customer_id, CASE WHEN is_by_name = 1 THEN customer_name END
               ),
               generate_subscripts(item_ids, 1) AS line;
END
$$
