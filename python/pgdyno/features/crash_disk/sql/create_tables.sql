-- The rows of all transactions, and rows that transactions overwrite. The filler of a row is its checksum in
-- hexadecimal, eight times.
create table pgdyno_ledger (
    client integer not null,
    sequence bigint not null,
    checksum bigint not null,
    slot integer not null,
    filler text not null,
    primary key (client, sequence)
);
create table pgdyno_ledger_slot (
    client integer not null,
    slot integer not null,
    sequence bigint not null,
    checksum bigint not null,
    filler text not null,
    primary key (client, slot)
);
create index pgdyno_ledger_slot_sequence on pgdyno_ledger_slot (sequence);
