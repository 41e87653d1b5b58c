"""Masks of columns without a server: rules, refusals by type and key, and the rows of a dump."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgdyno.errors import DatasetError, UsageError
from pgdyno.server.dump_masking import DumpMasking
from pgdyno.server.dump_scan import scan
from pgdyno.server.mask_columns import Column, Key, Mask, masks_of
from pgdyno.study.mask_rules import mask_rules

SECRET = b"s" * 32


def column(table: str, name: str, kind: str = "text", **facts: object) -> Column:
    usual = Column("public", table, name, True, kind, None, False, False, False, (("public", table),))
    return replace(usual, **facts)  # type: ignore[arg-type]


EMAIL = column("customer", "email", not_null=True)
ID = column("customer", "id", "int4", not_null=True)
OWNER = column("purchase", "customer_id", "int8")
PHONE = column("customer", "phone", "varchar", length_max=20)
CODE = column("customer", "code", "bpchar", length_max=5)
BORN = column("customer", "born", "date")
LOWER = column("customer", "email_lower", is_generated=True)
DAY = column("purchase", "day", "text", is_partition_key=True)
COLUMNS = (EMAIL, ID, OWNER, PHONE, CODE, BORN, LOWER, DAY)
KEYS = (
    Key("purchase_customer_fkey", [OWNER], [ID]),
    Key("customer_pkey", [ID], []),
    Key("customer_email", [EMAIL], []),
    Key("customer_born_phone", [BORN, PHONE], []),
)

WRONG_RULES: Mapping[str, str] = {
    "email=hash": "name a column as",
    "customer.email": "form TABLE.COLUMN=ACTION",
    "a.b.c.d=hash": "name a column as",
    "customer.email=encrypt": "use keep, hash, shuffle, null",
    "customer.email=s/(/x/": "regular expression is malformed",
    r"customer.email=s/a/\9/": "regular expression is malformed",
    "missing.toml": "cannot read",
}


@pytest.mark.parametrize("text", WRONG_RULES)
def test_a_malformed_rule_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=WRONG_RULES[text]):
        mask_rules([text])


REFUSED: Mapping[str, str] = {
    "*.nothing=hash": "matches no column",
    "*.email=null": "it is NOT NULL",
    "*.born=hash": "its type is date",
    "*.born=s/1/2/": "its type is date",
    "*.code=hash": "it has 5 characters, and a hash needs 16",
    "*.email_lower=hash": "it is generated",
    "*.day=hash": "it is a partition key",
    "*.email=s/a/b/": "would break the key customer_email",
    "*.phone=shuffle": "which has several columns",
    "customer.id=hash": "use hash for both or for neither",
    "*.customer_id=hash": "use hash for both or for neither",
}


@pytest.mark.parametrize("text", REFUSED)
def test_a_mask_that_breaks_types_or_keys_is_refused_before_reading(text: str) -> None:
    with pytest.raises(UsageError, match=REFUSED[text]):
        masks_of(COLUMNS, KEYS, mask_rules([text]))


def test_later_rules_override_earlier_ones_and_partitions_follow_their_table(tmp_path: Path) -> None:
    part = column("purchase_2025", "note", tables=(("public", "purchase_2025"), ("public", "purchase")))
    whole = column("purchase", "note", has_rows=False)
    file = tmp_path / "masks.toml"
    file.write_text('"*.email" = "hash"\n"public.purchase.note" = "null"\n')
    masks = masks_of([EMAIL, part, whole], [], mask_rules([str(file), "customer.email=keep"]))
    assert list(masks) == [("public", "purchase_2025")]
    assert masks["public", "purchase_2025"]["note"].action == "null"
    both = masks_of(COLUMNS, KEYS, mask_rules(["customer.id=hash", "*.customer_id=hash"]))
    assert {table for _, table in both} == {"customer", "purchase"}


def masking(*rules: str) -> DumpMasking:
    loose = [replace(one, not_null=False) for one in COLUMNS if one not in (LOWER, DAY)]
    return DumpMasking(masks_of(loose, [], mask_rules(rules)), SECRET, shuffling=random.Random(1))


DUMP = rb"""SET client_encoding = 'UTF8';
COPY public.other (email) FROM stdin;
a@example.org
\.
COPY public.customer (id, email, phone, born) FROM stdin;
1	a@example.org	12	2000-01-01
2	a@example.org	\N	2000-01-02
-3	back\\slash\tand tab	345	\N
\.
COPY public.purchase (customer_id) FROM stdin;
1
\.
CREATE INDEX i ON public.customer (email);
"""


def rows_of(lines: list[bytes]) -> list[list[bytes]]:
    begin = next(n for n, line in enumerate(lines) if line.startswith(b"COPY public.customer"))
    return [line.rstrip(b"\n").split(b"\t") for line in lines[begin + 1 : begin + 4]]


def test_rows_are_masked_and_everything_else_stays() -> None:
    own = masking("*.email=hash", "*.id=hash", "*.customer_id=hash", "*.phone=s/[0-9]/9/", "*.born=shuffle")
    lines = list(own.masked(DUMP.splitlines(keepends=True)))
    assert own.seen == {("public", "customer"), ("public", "purchase")}
    kept = DUMP.splitlines(keepends=True)
    assert [a for a, b in zip(lines, kept, strict=True) if a == b] == [*kept[:5], *kept[8:10], *kept[11:]]
    first, second, third = rows_of(lines)
    assert first[1] == second[1] != third[1]
    assert b"example" not in first[1]
    assert (len(first[1]), len(third[1])) == (16, 18)
    assert [first[2], second[2], third[2]] == [b"99", rb"\N", b"999"]
    assert sorted([first[3], second[3], third[3]]) == [b"2000-01-01", b"2000-01-02", rb"\N"]
    assert first[0] == lines[10].rstrip()  # int4 and int8 have the same hash: the foreign key holds
    assert int(third[0]) < 0


@given(st.sets(st.integers(-(2**63), 2**63 - 1), min_size=2, max_size=50))
def test_hashed_integers_stay_unique_and_within_their_width(values: set[int]) -> None:
    own = DumpMasking({}, SECRET)
    hashed = {value: own._integer(value) for value in values}
    assert len(set(hashed.values())) == len(values)
    for value, other in hashed.items():
        for bits in (16, 32, 64):
            inside = [-(2 ** (bits - 1)) <= one < 2 ** (bits - 1) for one in (value, other)]
            assert inside[0] == inside[1]


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0")))
def test_a_replacement_that_changes_nothing_returns_the_same_value(text: str) -> None:
    rule = mask_rules(["t.c=s/(.)/\\1/"])[0]
    escaped = {"\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}
    value = "".join(escaped.get(char, char) for char in text).encode()
    assert DumpMasking({}, SECRET).function_of(Mask(rule, "text"))(value) == value


DAMAGED: Mapping[str, bytes] = {
    "columns instead of": DUMP.replace(b"\t12\t", b"\t"),
    "has changed while it was read": DUMP.replace(b"id, email", b"id, mail"),
    "cannot find the end": DUMP.replace(b"\\.\nCOPY public.customer", b"COPY public.customer"),
    "ended within the rows": DUMP.rpartition(b"\\.\n")[0],
}


@pytest.mark.parametrize("message", DAMAGED)
def test_a_dump_that_cannot_be_masked_for_sure_is_refused_without_its_values(message: str) -> None:
    with pytest.raises(DatasetError, match=message) as caught:
        list(masking("*.email=hash").masked(DAMAGED[message].splitlines(keepends=True)))
    assert "example" not in str(caught.value)


def test_a_large_table_is_shuffled_in_parts_and_keeps_all_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pgdyno.server.dump_masking.HELD_ROWS_MAX", 10)
    rows = [b"%d\ta\t\\N\t%d\n" % (n, n) for n in range(95)]
    lines = [b"COPY public.customer (id, email, phone, born) FROM stdin;\n", *rows, b"\\.\n"]
    found = list(masking("*.born=shuffle").masked(lines))[1:-1]
    values = [line.split() for line in found]
    assert [int(row[0]) for row in values] == list(range(95))
    assert sorted(int(row[3]) for row in values) == list(range(95))
    assert sum(row[0] == row[3] for row in values) < 40


def test_a_masked_dump_keeps_the_locale_of_its_database_in_a_comment() -> None:
    comment = (
        b"-- CREATE DATABASE masked WITH TEMPLATE = template0 ENCODING = 'LATIN1' LC_COLLATE = 'de_DE';\n"
    )
    facts = scan([comment, b"SET client_encoding = 'UTF8';\n"])
    assert facts.locale == {"ENCODING": "LATIN1", "LC_COLLATE": "de_DE"}
