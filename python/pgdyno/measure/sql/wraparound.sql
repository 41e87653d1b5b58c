-- Distance of the current database from transaction ID wraparound: ages in transactions. The query assigns no ID.
SELECT /* pgdyno probe */
    age(datfrozenxid) AS frozen_xid_age,
    mxid_age(datminmxid) AS frozen_mxid_age,
    current_setting('autovacuum_freeze_max_age')::bigint AS autovacuum_freeze_max_age,
    current_setting('autovacuum_multixact_freeze_max_age')::bigint AS autovacuum_multixact_freeze_max_age,
    pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS next_xid  -- from 13
    txid_snapshot_xmax(txid_current_snapshot()) AS next_xid  -- to 12
FROM pg_database
WHERE datname = current_database()
