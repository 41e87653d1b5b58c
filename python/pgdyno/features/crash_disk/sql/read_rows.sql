select client, sequence, checksum, slot, filler = repeat(lpad(to_hex(checksum), 16, '0'), 8)
from pgdyno_ledger;
