-- Payment with the signature of HammerDB.
CREATE FUNCTION payment(
    home_w_id     integer,
    home_d_id     integer,
    customer_w_id integer,
    customer_d_id integer,
    customer_id   integer,
    is_by_name    integer,
    amount        numeric,
    customer_name varchar,
    credit        varchar,
    balance       numeric
)
RETURNS integer
LANGUAGE plpgsql
AS $$
BEGIN
    RETURN (
        SELECT found_c_id
          FROM tpcc_payment(
                   home_w_id, home_d_id::smallint, customer_w_id, customer_d_id::smallint, customer_id,
                   CASE WHEN is_by_name = 1 THEN customer_name END, amount
               )
    );
END
$$
