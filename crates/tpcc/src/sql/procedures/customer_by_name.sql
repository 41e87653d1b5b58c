-- The customer of a last name (clauses 2.5.2.2, 2.6.2.2): row n/2, rounded up, of those with the name, by first name.
CREATE OR REPLACE FUNCTION tpcc_customer_by_name(
    name_w_id integer,
    name_d_id smallint,
    name      varchar
)
RETURNS integer
LANGUAGE plpgsql
STABLE
AS $$
DECLARE
    ids integer[];
BEGIN
    ids := ARRAY(
        SELECT c_id
          FROM customer
         WHERE c_w_id = name_w_id AND c_d_id = name_d_id AND c_last = name
         ORDER BY c_first, c_id
    );
    RETURN ids[(array_length(ids, 1) + 1) / 2]; --[unless customer-after-middle]
    RETURN ids[least((array_length(ids, 1) + 1) / 2 + 1, array_length(ids, 1))]; --[if customer-after-middle]
END
$$
