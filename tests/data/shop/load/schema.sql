CREATE ROLE shop_owner;
CREATE ROLE "shop reader";
CREATE TABLE customer (id integer PRIMARY KEY, email text NOT NULL UNIQUE, profile jsonb NOT NULL);
CREATE TABLE product (id integer PRIMARY KEY, name text NOT NULL, stock integer NOT NULL CHECK (stock >= 0));
CREATE SEQUENCE order_number START 1001;
CREATE TABLE purchase (
    id bigint NOT NULL DEFAULT nextval('order_number'),
    customer_id integer NOT NULL,
    product_id integer NOT NULL,
    amount integer NOT NULL,
    bought_on date NOT NULL
) PARTITION BY RANGE (bought_on);
CREATE TABLE purchase_2025 PARTITION OF purchase FOR VALUES FROM ('2025-01-01') TO ('2026-01-01');
CREATE TABLE purchase_2026 PARTITION OF purchase FOR VALUES FROM ('2026-01-01') TO ('2027-01-01');
ALTER TABLE purchase_2025 ADD PRIMARY KEY (id), ADD FOREIGN KEY (customer_id) REFERENCES customer;
ALTER TABLE purchase_2026 ADD PRIMARY KEY (id), ADD FOREIGN KEY (customer_id) REFERENCES customer;
CREATE TABLE sold (product_id integer PRIMARY KEY REFERENCES product, amount bigint NOT NULL);
CREATE FUNCTION count_sale() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE public.sold SET amount = sold.amount + NEW.amount WHERE product_id = NEW.product_id;
    RETURN NEW;
END $$;
CREATE TRIGGER sale AFTER INSERT ON purchase_2025 FOR EACH ROW EXECUTE PROCEDURE count_sale();
CREATE TRIGGER sale AFTER INSERT ON purchase_2026 FOR EACH ROW EXECUTE PROCEDURE count_sale();
ALTER TABLE customer OWNER TO shop_owner;
GRANT SELECT ON product, sold TO "shop reader";
