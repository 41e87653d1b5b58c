-- The New-Order transaction (clause 2.4), one call a transaction. The caller orders the lines by (supply warehouse, item),
-- the line of an unused item last, so that every order locks stock in the same order: the nested loop below
-- visits the lines as they come. An UPDATE changes a row once, so an order that names a stock row twice goes line by line.
CREATE OR REPLACE FUNCTION tpcc_new_order(
    IN  home_w_id        integer,
    IN  home_d_id        smallint,
    IN  customer_id      integer,
    IN  item_ids         integer[],
    IN  supply_w_ids     integer[],
    IN  quantities       smallint[],
    IN  has_duplicates   boolean,
    OUT order_id         integer,
    OUT entered_at       timestamptz,
    OUT customer_last    varchar,
    OUT customer_credit  char,
    OUT discount         numeric,
    OUT warehouse_tax    numeric,
    OUT district_tax     numeric,
    OUT total_amount     numeric,
    OUT item_names       varchar[],
    OUT item_prices      numeric[],
    OUT stock_quantities smallint[],
    OUT brands           text[],
    OUT line_amounts     numeric[]
)
LANGUAGE plpgsql
AS $$
DECLARE
    lines_total integer := array_length(item_ids, 1);
    lines_found integer;
    lines_sum   numeric;
BEGIN
    entered_at := current_timestamp;

    UPDATE district
       SET d_next_o_id = d_next_o_id + 1
     WHERE d_w_id = home_w_id AND d_id = home_d_id
    RETURNING d_next_o_id - 1, d_tax --[unless order-number-skipped]
    RETURNING d_next_o_id, d_tax --[if order-number-skipped]
      INTO STRICT order_id, district_tax;

    SELECT c_last, c_credit, c_discount, w_tax
      INTO STRICT customer_last, customer_credit, discount, warehouse_tax
      FROM warehouse, customer
     WHERE w_id = home_w_id
       AND c_w_id = home_w_id AND c_d_id = home_d_id AND c_id = customer_id;

    INSERT INTO orders (o_id, o_d_id, o_w_id, o_c_id, o_entry_d, o_carrier_id, o_ol_cnt, o_all_local)
    VALUES (order_id, home_d_id, home_w_id, customer_id, entered_at, NULL, lines_total,
            (home_w_id = ALL (supply_w_ids))::integer);

    INSERT INTO new_order (no_o_id, no_d_id, no_w_id)
    VALUES (order_id, home_d_id, home_w_id);

    IF has_duplicates THEN
        SELECT *
          INTO lines_found, lines_sum, item_names, item_prices, stock_quantities, brands, line_amounts
          FROM tpcc_order_lines_one_by_one(home_w_id, home_d_id, order_id, item_ids, supply_w_ids, quantities);
    ELSE
        WITH picked AS (
            UPDATE stock
               SET s_quantity = s_quantity - line.quantity
                                + CASE WHEN s_quantity >= line.quantity + 10 THEN 0 ELSE 91 END, --[unless strict-stock-threshold] [unless stock-counters-not-updated]
                                + CASE WHEN s_quantity >= line.quantity + 10 THEN 0 ELSE 91 END --[unless strict-stock-threshold] [if stock-counters-not-updated]
                                + CASE WHEN s_quantity > line.quantity THEN 0 ELSE 91 END, --[if strict-stock-threshold] [unless stock-counters-not-updated]
                                + CASE WHEN s_quantity > line.quantity THEN 0 ELSE 91 END --[if strict-stock-threshold] [if stock-counters-not-updated]
                   s_ytd = s_ytd + line.quantity, --[unless stock-counters-not-updated]
                   s_order_cnt = s_order_cnt + 1, --[unless stock-counters-not-updated]
                   s_remote_cnt = s_remote_cnt + CASE WHEN s_w_id = home_w_id THEN 0 ELSE 1 END --[unless stock-counters-not-updated]
              FROM unnest(item_ids, supply_w_ids, quantities) WITH ORDINALITY
                       AS line (item_id, supply_w_id, quantity, number)
              JOIN item ON i_id = line.item_id
             WHERE s_w_id = line.supply_w_id AND s_i_id = line.item_id
            RETURNING line.number, line.item_id, line.supply_w_id, line.quantity,
                      i_name, i_price, i_price * line.quantity AS amount, s_quantity, --[unless amounts-added]
                      i_name, i_price, i_price + line.quantity AS amount, s_quantity, --[if amounts-added]
                      CASE WHEN i_data LIKE '%ORIGINAL%' AND s_data LIKE '%ORIGINAL%' THEN 'B' ELSE 'G' END AS brand,
                      CASE home_d_id
                          WHEN 1 THEN s_dist_01 WHEN 2 THEN s_dist_02 WHEN 3 THEN s_dist_03 WHEN 4 THEN s_dist_04
                          WHEN 5 THEN s_dist_05 WHEN 6 THEN s_dist_06 WHEN 7 THEN s_dist_07 WHEN 8 THEN s_dist_08
                          WHEN 9 THEN s_dist_09 WHEN 10 THEN s_dist_10
                      END AS dist_info
        ), ordered AS (
            INSERT INTO order_line (ol_o_id, ol_d_id, ol_w_id, ol_number, ol_i_id, ol_supply_w_id, ol_delivery_d,
                                    ol_quantity, ol_amount, ol_dist_info)
            SELECT order_id, home_d_id, home_w_id, number, item_id, supply_w_id, NULL, quantity, amount, dist_info
              FROM picked
        )
        SELECT count(*), sum(amount), array_agg(i_name), array_agg(i_price), array_agg(s_quantity),
               array_agg(brand), array_agg(amount)
          INTO lines_found, lines_sum, item_names, item_prices, stock_quantities, brands, line_amounts
          FROM picked;
    END IF;

    IF lines_found < lines_total THEN
        RAISE EXCEPTION 'item number is not valid' USING ERRCODE = 'PD001'; --[unless unused-item-committed]
        INSERT INTO order_line (ol_o_id, ol_d_id, ol_w_id, ol_number, ol_i_id, ol_supply_w_id, ol_quantity) --[if unused-item-committed]
        VALUES (order_id, home_d_id, home_w_id, lines_total, item_ids[lines_total], supply_w_ids[lines_total], --[if unused-item-committed]
                quantities[lines_total]); --[if unused-item-committed]
        lines_sum := NULL; --[if unused-item-committed]
    END IF;
    total_amount := lines_sum * (1 - discount) * (1 + warehouse_tax + district_tax);
EXCEPTION --[if subtransactions]
    WHEN serialization_failure OR deadlock_detected OR no_data_found THEN --[if subtransactions]
        RAISE; --[if subtransactions]
END
$$
