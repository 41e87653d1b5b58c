select client, slot, sequence, checksum, filler = repeat(lpad(to_hex(checksum), 16, '0'), 8)
from pgdyno_ledger_slot;
