-- New-Order with the signature of HammerDB, which draws the lines in the server.
CREATE FUNCTION neword(
    home_w_id   integer,
    warehouses  integer,
    home_d_id   integer,
    customer_id integer,
    line_count  integer,
    unused      integer
)
RETURNS numeric
LANGUAGE plpgsql
AS $$
DECLARE
    has_unused_item boolean := random() < 0.01;
    item_ids        integer[];
    supply_w_ids    integer[];
    quantities      smallint[];
BEGIN
    SELECT array_agg(CASE WHEN has_unused_item AND number = line_count THEN 100001
                          ELSE 1 + floor(random() * 100000)::integer END),
           array_agg(CASE WHEN random() < 0.01 THEN 1 + floor(random() * warehouses)::integer ELSE home_w_id END),
           array_agg((1 + floor(random() * 10))::smallint)
      INTO item_ids, supply_w_ids, quantities
      FROM generate_series(1, line_count) AS number;
    RETURN (
        SELECT total_amount
          FROM tpcc_new_order(
                   home_w_id, home_d_id::smallint, customer_id, item_ids, supply_w_ids, quantities,
                   (SELECT count(DISTINCT (item_id, supply_w_id)) < line_count
                      FROM unnest(item_ids, supply_w_ids) AS line (item_id, supply_w_id))
               )
    );
END
$$
