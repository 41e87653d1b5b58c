-- The Payment transaction (clause 2.5), one call a transaction. The customer is given by number, or else by last name.
-- The customer's row is changed first and the warehouse's, which all payments of a warehouse wait for, last.
CREATE OR REPLACE FUNCTION tpcc_payment(
    IN  home_w_id     integer,
    IN  home_d_id     smallint,
    IN  customer_w_id integer,
    IN  customer_d_id smallint,
    IN  customer_id   integer,
    IN  customer_name varchar,
    IN  amount        numeric,
    OUT customer      integer,
    OUT paid_at       timestamptz,
    OUT c_address     text[],
    OUT c_credit_lim  numeric,
    OUT c_discount    numeric,
    OUT c_balance     numeric,
    OUT c_since       timestamptz,
    OUT c_data        text,
    OUT d_address     text[],
    OUT w_address     text[]
)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
BEGIN
    paid_at := current_timestamp;
    customer := coalesce(customer_id, tpcc_customer_by_name(customer_w_id, customer_d_id, customer_name));

    UPDATE customer AS c
       SET c_balance = c.c_balance - amount,
           c_ytd_payment = c.c_ytd_payment + amount,
           c_payment_cnt = c.c_payment_cnt + 1,
           c_data = CASE c.c_credit
                        WHEN 'BC' THEN left(concat_ws(' ', c.c_id, c.c_d_id, c.c_w_id, home_d_id, home_w_id, amount, '')
                                            || c.c_data, 500)
                        ELSE c.c_data
                    END
     WHERE c.c_w_id = customer_w_id AND c.c_d_id = customer_d_id AND c.c_id = tpcc_payment.customer
    RETURNING ARRAY[c.c_first, c.c_middle, c.c_last, c.c_street_1, c.c_street_2, c.c_city, c.c_state, c.c_zip,
                    c.c_phone, c.c_credit],
              c.c_credit_lim, c.c_discount, c.c_balance, c.c_since,
              CASE c.c_credit WHEN 'BC' THEN left(c.c_data, 200) END
      INTO STRICT c_address, c_credit_lim, c_discount, c_balance, c_since, c_data;

    UPDATE district
       SET d_ytd = d_ytd + amount
     WHERE d_w_id = home_w_id AND d_id = home_d_id
    RETURNING ARRAY[d_name, d_street_1, d_street_2, d_city, d_state, d_zip]
      INTO STRICT d_address;

    UPDATE warehouse
       SET w_ytd = w_ytd + amount
     WHERE w_id = home_w_id
    RETURNING ARRAY[w_name, w_street_1, w_street_2, w_city, w_state, w_zip]
      INTO STRICT w_address;

    INSERT INTO history (h_c_d_id, h_c_w_id, h_c_id, h_d_id, h_w_id, h_date, h_amount, h_data)
    VALUES (customer_d_id, customer_w_id, tpcc_payment.customer, home_d_id, home_w_id, paid_at, amount,
            w_address[1] || '    ' || d_address[1]);
END
$$
