-- The lines of an order that names a stock row more than once: each line sees what the line before it left.
CREATE OR REPLACE FUNCTION tpcc_order_lines_one_by_one(
    IN  home_w_id        integer,
    IN  home_d_id        smallint,
    IN  order_id         integer,
    IN  item_ids         integer[],
    IN  supply_w_ids     integer[],
    IN  quantities       smallint[],
    OUT lines_found      integer,
    OUT lines_sum        numeric,
    OUT item_names       varchar[],
    OUT item_prices      numeric[],
    OUT stock_quantities smallint[],
    OUT brands           text[],
    OUT line_amounts     numeric[]
)
LANGUAGE plpgsql
AS $$
DECLARE
    picked record;
BEGIN
    lines_found := 0;
    lines_sum := 0;
    FOR number IN 1 .. array_length(item_ids, 1) LOOP
        UPDATE stock
           SET s_quantity = s_quantity - quantities[number]
                            + CASE WHEN s_quantity >= quantities[number] + 10 THEN 0 ELSE 91 END, --[unless strict-stock-threshold] [unless stock-counters-not-updated]
                            + CASE WHEN s_quantity >= quantities[number] + 10 THEN 0 ELSE 91 END --[unless strict-stock-threshold] [if stock-counters-not-updated]
                            + CASE WHEN s_quantity > quantities[number] THEN 0 ELSE 91 END, --[if strict-stock-threshold] [unless stock-counters-not-updated]
                            + CASE WHEN s_quantity > quantities[number] THEN 0 ELSE 91 END --[if strict-stock-threshold] [if stock-counters-not-updated]
               s_ytd = s_ytd + quantities[number], --[unless stock-counters-not-updated]
               s_order_cnt = s_order_cnt + 1, --[unless stock-counters-not-updated]
               s_remote_cnt = s_remote_cnt + CASE WHEN s_w_id = home_w_id THEN 0 ELSE 1 END --[unless stock-counters-not-updated]
          FROM item
         WHERE i_id = item_ids[number] AND s_w_id = supply_w_ids[number] AND s_i_id = item_ids[number]
        RETURNING i_name, i_price, i_price * quantities[number] AS amount, s_quantity, --[unless amounts-added]
        RETURNING i_name, i_price, i_price + quantities[number] AS amount, s_quantity, --[if amounts-added]
                  CASE WHEN i_data LIKE '%ORIGINAL%' AND s_data LIKE '%ORIGINAL%' THEN 'B' ELSE 'G' END AS brand,
                  CASE home_d_id
                      WHEN 1 THEN s_dist_01 WHEN 2 THEN s_dist_02 WHEN 3 THEN s_dist_03 WHEN 4 THEN s_dist_04
                      WHEN 5 THEN s_dist_05 WHEN 6 THEN s_dist_06 WHEN 7 THEN s_dist_07 WHEN 8 THEN s_dist_08
                      WHEN 9 THEN s_dist_09 WHEN 10 THEN s_dist_10
                  END AS dist_info
          INTO picked;
        EXIT WHEN NOT FOUND;

        INSERT INTO order_line (ol_o_id, ol_d_id, ol_w_id, ol_number, ol_i_id, ol_supply_w_id, ol_delivery_d,
                                ol_quantity, ol_amount, ol_dist_info)
        VALUES (order_id, home_d_id, home_w_id, number, item_ids[number], supply_w_ids[number], NULL,
                quantities[number], picked.amount, picked.dist_info);

        lines_found := lines_found + 1;
        lines_sum := lines_sum + picked.amount;
        item_names := item_names || picked.i_name;
        item_prices := item_prices || picked.i_price;
        stock_quantities := stock_quantities || picked.s_quantity;
        brands := brands || picked.brand;
        line_amounts := line_amounts || picked.amount;
    END LOOP;
END
$$
