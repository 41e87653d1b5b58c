-- Stock-Level with the signature of HammerDB.
CREATE FUNCTION slev(
    home_w_id integer,
    home_d_id integer,
    threshold integer
)
RETURNS integer
LANGUAGE plpgsql
AS $$
BEGIN
    RETURN tpcc_stock_level(home_w_id, home_d_id::smallint, threshold::smallint);
END
$$
