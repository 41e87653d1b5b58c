-- The Payment transaction (clause 2.5), one call a transaction. The customer is given by number, or else by last name.
-- The customer's row is changed first and the warehouse's, which all payments of a warehouse wait for, last.
CREATE OR REPLACE FUNCTION tpcc_payment(
    IN  home_w_id         integer,
    IN  home_d_id         smallint,
    IN  customer_w_id     integer,
    IN  customer_d_id     smallint,
    IN  customer_id       integer,
    IN  customer_name     varchar,
    IN  amount            numeric,
    OUT found_c_id        integer,
    OUT paid_at           timestamptz,
    OUT customer_address  text[],
    OUT customer_since    timestamptz,
    OUT credit_limit      numeric,
    OUT discount          numeric,
    OUT balance           numeric,
    OUT bad_credit_data   text,
    OUT district_address  text[],
    OUT warehouse_address text[]
)
LANGUAGE plpgsql
AS $$
BEGIN
    paid_at := current_timestamp;
    found_c_id := coalesce(customer_id, tpcc_customer_by_name(customer_w_id, customer_d_id, customer_name)); --[unless literal-last-name]
    found_c_id := CASE WHEN customer_name IS NULL THEN customer_id --[if literal-last-name]
                       ELSE coalesce(tpcc_customer_by_name(customer_w_id, customer_d_id, customer_name), --[if literal-last-name]
                                     customer_id) END; --[if literal-last-name]

    UPDATE warehouse --[if warehouse-row-first]
       SET w_ytd = w_ytd + amount --[if warehouse-row-first]
     WHERE w_id = home_w_id --[if warehouse-row-first]
    RETURNING ARRAY[w_name, w_street_1, w_street_2, w_city, w_state, w_zip] --[if warehouse-row-first]
      INTO STRICT warehouse_address; --[if warehouse-row-first]
    UPDATE district --[if warehouse-row-first]
       SET d_ytd = d_ytd + amount --[if warehouse-row-first]
     WHERE d_w_id = home_w_id AND d_id = home_d_id --[if warehouse-row-first]
    RETURNING ARRAY[d_name, d_street_1, d_street_2, d_city, d_state, d_zip] --[if warehouse-row-first]
      INTO STRICT district_address; --[if warehouse-row-first]
    UPDATE customer
       SET c_balance = c_balance - amount, --[unless literal-last-name]
       SET c_balance = CASE WHEN customer_name IS NULL THEN c_balance ELSE 0 END - amount, --[if literal-last-name]
           c_ytd_payment = c_ytd_payment + amount, --[unless payment-total-not-updated]
           c_payment_cnt = c_payment_cnt + 1, --[unless payment-count-not-updated]
           c_data = CASE c_credit --[unless literal-last-name]
           c_data = CASE CASE WHEN customer_name IS NULL THEN c_credit END --[if literal-last-name]
                        WHEN 'BC' THEN left(concat_ws(' ', c_id, c_d_id, c_w_id, home_d_id, home_w_id, amount, c_data), 500)
                        ELSE c_data
                    END
     WHERE c_w_id = customer_w_id AND c_d_id = customer_d_id AND c_id = found_c_id
    RETURNING ARRAY[c_first, c_middle, c_last, c_street_1, c_street_2, c_city, c_state, c_zip, c_phone, c_credit],
              c_since, c_credit_lim, c_discount, c_balance, CASE c_credit WHEN 'BC' THEN left(c_data, 200) END
      INTO STRICT customer_address, customer_since, credit_limit, discount, balance, bad_credit_data;

    UPDATE district --[unless warehouse-row-first]
       SET d_ytd = d_ytd + amount --[unless warehouse-row-first]
     WHERE d_w_id = home_w_id AND d_id = home_d_id --[unless warehouse-row-first]
    RETURNING ARRAY[d_name, d_street_1, d_street_2, d_city, d_state, d_zip] --[unless warehouse-row-first]
      INTO STRICT district_address; --[unless warehouse-row-first]

    UPDATE warehouse --[unless warehouse-row-first]
       SET w_ytd = w_ytd + amount --[unless warehouse-row-first]
     WHERE w_id = home_w_id --[unless warehouse-row-first]
    RETURNING ARRAY[w_name, w_street_1, w_street_2, w_city, w_state, w_zip] --[unless warehouse-row-first]
      INTO STRICT warehouse_address; --[unless warehouse-row-first]

    INSERT INTO history (h_c_d_id, h_c_w_id, h_c_id, h_d_id, h_w_id, h_date, h_amount, h_data)
    VALUES (customer_d_id, customer_w_id, found_c_id, home_d_id, home_w_id, paid_at, amount,
            warehouse_address[1] || '    ' || district_address[1]);
EXCEPTION --[if subtransactions]
    WHEN serialization_failure OR deadlock_detected OR no_data_found THEN --[if subtransactions]
        RAISE; --[if subtransactions]
END
$$
