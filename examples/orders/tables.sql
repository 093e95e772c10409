-- The shop's own tables. OnceKey's stand beside them: records, outbox and inbox.
CREATE TABLE orders (
    number int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer text NOT NULL,
    item text NOT NULL,
    ordered_at timestamptz NOT NULL DEFAULT now()
);

-- No UNIQUE on the order: a shipment that is made twice would be seen here.
CREATE TABLE shipments (
    order_number int8 NOT NULL REFERENCES orders,
    shipped_at timestamptz NOT NULL DEFAULT now()
);
