insert into pgdyno_ledger_slot (client, slot, sequence, checksum, filler)
select client, slot, 0, 0, repeat('0', 128)
from generate_series(0, %(clients)s - 1) as client, generate_series(0, %(slots)s - 1) as slot;
