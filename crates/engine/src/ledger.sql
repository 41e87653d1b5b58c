with changed as (
    update pgdyno_ledger_slot set sequence = $2, checksum = $3, filler = $4 where client = $1 and slot = $5
)
insert into pgdyno_ledger (client, sequence, checksum, filler, slot) values ($1, $2, $3, $4, $5)
