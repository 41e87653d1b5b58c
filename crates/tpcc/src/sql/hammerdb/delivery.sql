-- Delivery with the signature of HammerDB.
CREATE FUNCTION delivery(
    home_w_id integer,
    carrier   integer
)
RETURNS integer
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM tpcc_delivery(home_w_id, carrier::smallint);
    RETURN 1;
END
$$
