"""Statements to scripts without a server: parser, uses of parameters, draws of values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgdyno.features.statement_parameters.draws import (
    Draw,
    LoggedRange,
    Statement,
    repeated_draws,
    with_values,
)
from pgdyno.features.statement_parameters.parse import (
    Column,
    ParsedStatement,
    Reason,
    Table,
    Tables,
    Unusable,
    Use,
    parameter_uses,
    parse_statement,
)
from pgdyno.workloads.pgbench.parameters import STUB


def column(name: str, type_: str = "integer", **facts: object) -> Column:
    base_type = type_.partition("(")[0]
    known = {"has_default": False, "in_foreign_key": False, "null_fraction": 0.0, "has_common_values": None}
    return Column(name, name, type_, base_type, **{**known, "width": None, **facts})  # type: ignore[arg-type]


def table(name: str, *columns: Column, keys: tuple[tuple[str, ...], ...] = (), **facts: bool) -> Table:
    known = {"is_system": False, "is_empty": False, "is_referenced": False, **facts}
    return Table(name, columns={one.name: one for one in columns}, unique_keys=frozenset(keys), **known)


CUSTOMER = table(
    "public.customer",
    column("id", has_default=True),
    column("email", "character varying(20)"),
    column("city", "text", has_common_values=True),
    column("born", "date", width=36500.0),
    column("note", "text", null_fraction=1.0),
    column("mood", "mood"),
    keys=(("id",), ("email",)),
)
ITEM = table(
    "sales.item",
    column("order_id", "bigint", in_foreign_key=True),
    column("line", "integer"),
    column("price", "numeric", width=1000.0),
    column("made_at", "timestamp with time zone", width=3.6e6),
    keys=(("order_id", "line"),),
)
LINK = table("public.link", column("a", in_foreign_key=True), keys=(("a",),))
EMPTY = table("public.empty", column("n"), is_empty=True)
TABLES: Tables = {
    ("", "customer"): CUSTOMER,
    ("sales", "item"): ITEM,
    ("", "link"): LINK,
    ("", "empty"): EMPTY,
}


def parsed(text: str) -> ParsedStatement:
    """Parse a statement. One that begins with WHERE reads customers."""
    return parse_statement(f"SELECT * FROM customer {text}" if text.startswith("WHERE") else text)


def uses_of(text: str) -> list[Use]:
    return parameter_uses(parsed(text), TABLES)[0]


def shown(use: Use) -> str:
    """Return role and column of a use, as ``value id`` of a customer, or an argument with its place."""
    if use.column:
        table = "" if use.column[0][1] == "customer" else f"{use.column[0][1]}."
        return f"{use.role} {table}{use.column[1]}"
    return f"{use.role}: {use.place}" if use.place else str(use.role)


USES: Mapping[str, str] = {
    "SELECT 1": "constant",
    "WHERE id = $1": "value id",
    "WHERE $1 = id": "value id",
    "SELECT * FROM customer c WHERE c.id <> $1::bigint LIMIT $2 OFFSET $3": "value id, row count, offset",
    "SELECT * FROM customer FETCH FIRST 3 ROWS ONLY": "row count",
    "WHERE id IN (1, 2)": "value id, value id",
    "WHERE id IN ($1 /*, ... */)": "list id",
    "WHERE id = ANY ($1)": "list id",
    "WHERE id = ANY (ARRAY[1, 2])": "value id, value id",
    "WHERE id <> ALL ($1)": "list id",
    "WHERE born BETWEEN $1 AND $2": "bound born, range end born",
    "WHERE born >= $1 AND id > 5 AND $2 > born": "bound born, bound id, range end born",
    "WHERE born >= $1 OR born < $2": "bound born, bound born",
    "WHERE city LIKE 'a%' AND email NOT ILIKE $1": "pattern city, pattern email",
    "WHERE lower(email) = $1 OR lower(email) = lower($2)": "value email, value email",
    "WHERE 1 = 1 AND id IS DISTINCT FROM 2": "constant, constant, value id",
    "WHERE (id, city) = (1, 'x')": "value id, value city",
    "WHERE (id, city) IN ((1, 'x'), (2, 'y'))": "value id, value city, value id, value city",
    "WHERE (born, id) > ($1, $2)": "bound born, bound id",
    "SELECT price FROM sales.item AS i JOIN customer ON i.order_id = id AND i.line = 3 WHERE city = 'x'": (
        "value item.line, value city"
    ),
    "SELECT * FROM (SELECT id AS n, city FROM customer) AS x (m) WHERE m = 1 AND x.city = 'y'": (
        "value id, value city"
    ),
    "WITH w AS (SELECT id AS n FROM customer WHERE born = $1) SELECT * FROM w WHERE n = $2": (
        "value born, value id"
    ),
    "WITH customer AS (SELECT line AS id FROM sales.item) SELECT * FROM customer WHERE id = 5": (
        "value item.line"
    ),
    "SELECT (SELECT max(id) FROM customer WHERE customer.city = 'x') FROM sales.item WHERE line = 4": (
        "value city, value item.line"
    ),
    "WHERE EXISTS (SELECT 1 FROM sales.item WHERE line = id AND city = 'x')": "constant, value city",
    "WHERE 7 IN (SELECT line FROM sales.item)": "value item.line",
    "SELECT id FROM customer WHERE id = 1 UNION ALL SELECT line FROM sales.item WHERE line = 2 LIMIT 3": (
        "value id, value item.line, row count"
    ),
    "SELECT coalesce(city, 'none'), CASE city WHEN 'a' THEN 1 ELSE 2 END, count(*) FILTER (WHERE id = 3) "
    "FROM customer GROUP BY 1": "value city, value city, constant, constant, value id",
    "SELECT date_trunc('day', born), extract(year FROM born), substring(city FROM 1 FOR 2), price * 2 FROM "
    "customer, sales.item": "fixed, fixed, fixed, fixed, constant",
    "SELECT interval '1 day'": "constant",
    "SELECT row() = row()": "",
    "UPDATE customer SET (id, city) = ROW (customer.*) WHERE id = 1": "value id",
    "UPDATE customer SET (id, city) = (SELECT line, 'x' FROM sales.item WHERE line = 1) WHERE id = 2": (
        "constant, value item.line, value id"
    ),
    "INSERT INTO customer (email, city) VALUES ('a', 'b'), ($1, lower($2))": (
        "assigned email, assigned city, assigned email, assigned city"
    ),
    "INSERT INTO customer VALUES (1, 'b')": "assigned id, assigned email",
    "INSERT INTO customer (id, city) SELECT line, 'x' FROM sales.item WHERE price > 5": (
        "assigned city, bound item.price"
    ),
    "INSERT INTO customer AS c (id) VALUES (1) ON CONFLICT (id) DO UPDATE SET city = 'x', email = "
    "excluded.email WHERE c.born = $1 RETURNING c.id + 1": (
        "assigned id, assigned city, value born, constant"
    ),
    "UPDATE customer c SET city = 'x', id = id + 1 FROM sales.item i WHERE i.line = 2 AND c.id = line": (
        "assigned city, constant, value item.line"
    ),
    "UPDATE customer SET (city, email) = ('x', 'y') WHERE id = 1": "assigned city, assigned email, value id",
    "DELETE FROM customer USING sales.item WHERE id = order_id AND line = 2": "value item.line",
    "SELECT generate_series(1, 2), sum(f(id + 1)) FROM customer": (
        "argument: argument of generate_series, argument: argument of generate_series, argument: operand of +"
    ),
    "SELECT f(1)": "argument: argument of f",
    "SELECT * FROM f($1, n => 2)": "argument: argument of f, argument: argument n of f",
    "WHERE born > now() - $1 * interval '1 day' AND id = 4": (
        "argument: operand of *, argument: operand of *, value id"
    ),
    "WHERE born > now() - make_interval(days => 30)": "argument: argument days of make_interval",
    "WHERE born > current_date - $1": "argument: operand of -",
    "WHERE id = 1 AND $2": "value id, argument: part of a filter",
    "WHERE note::json ->> 'a' = $1": "argument: operand of ->>, argument: operand of =",
    "SELECT * FROM customer TABLESAMPLE system (1)": "argument: part of a filter",
    "MERGE INTO customer USING sales.item AS i ON id = i.line AND city = 'x' WHEN MATCHED THEN UPDATE SET "
    "email = 'y' WHEN NOT MATCHED THEN INSERT (id, city) VALUES (1, 'z')": (
        "value city, assigned email, assigned id, assigned city"
    ),
}


@pytest.mark.parametrize("text", USES)
def test_a_parameter_has_the_column_that_it_is_compared_with_or_assigned_to(text: str) -> None:
    assert ", ".join(shown(use) for use in uses_of(text)) == USES[text]


REFUSED: Mapping[str, tuple[Reason, str]] = {
    "VACUUM customer": (Reason.UTILITY, "VACUUM"),
    "COPY customer FROM stdin": (Reason.UTILITY, "COPY"),
    "CALL refresh(1)": (Reason.UTILITY, "CALL"),
    "ALTER ROLE someone PASSWORD 'secret'": (Reason.UTILITY, "ALTER ROLE"),
    "SELECT 1 AS a INTO b": (Reason.UTILITY, "SELECT INTO"),
    "BEGIN": (Reason.TRANSACTION, ""),
    "SELECT 1; SELECT 2": (Reason.NOT_PARSED, "it has 2 statements"),
    "SELECT 'secret' FRO customer": (Reason.NOT_PARSED, "syntax error"),
    "": (Reason.NOT_PARSED, "it has 0 statements"),
    "SELECT " + "||".join(["city"] * 9000): (Reason.NOT_PARSED, "it is nested too deeply"),
    "SELECT '" + "x" * 100_000 + "'": (Reason.TOO_LONG, ""),
    "SELECT pg_sleep(1)": (Reason.SYSTEM, "pg_sleep"),
    "SELECT pg_stat_statements_reset()": (Reason.SYSTEM, "pg_stat_statements_reset"),
}


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: text[:60])
def test_a_statement_without_script_has_a_reason_that_repeats_no_constant(text: str) -> None:
    with pytest.raises(Unusable) as refused:
        uses_of(text)
    assert (refused.value.reason, refused.value.detail) == REFUSED[text]


def test_constants_are_replaced_and_positions_are_those_of_bytes() -> None:
    parsed = parse_statement("SELECT 'é' AS \"ä\" FROM customer WHERE city = 'ü' AND id = $1 ; ")
    assert parsed.text == 'SELECT $2 AS "ä" FROM customer WHERE city = $3 AND id = $1'
    assert parsed.kind == "select"
    assert parsed.tables == (("", "customer"),)
    replaced = with_values(parsed.text, uses_of(parsed.text), {1: "one", 2: "two", 3: "drei"})
    assert replaced == 'SELECT two AS "ä" FROM customer WHERE city = drei AND id = one'


def test_comments_are_removed_except_hints_and_shortened_lists() -> None:
    text = 'SELECT /*+ SeqScan(c) */ "--a" /* by ann */ FROM customer -- 7\nWHERE id IN (/* 1 */ 5) /* :x */;'
    kept = 'SELECT /*+ SeqScan(c) */ "--a"   FROM customer  \nWHERE id IN (  $1)'
    assert parse_statement(text).text == kept
    assert "/*, ... */" in parse_statement("SELECT 1 FROM customer WHERE id IN ($1 /*, ... */)").text


@given(
    st.lists(
        st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8), min_size=1, max_size=5
    )
)
def test_no_constant_is_left_in_a_statement(constants: list[str]) -> None:
    quoted = ["'" + one.replace("'", "''") + "'" for one in constants]
    parsed = parse_statement(f"SELECT id FROM customer WHERE city IN ({', '.join(quoted)})")
    numbers = ", ".join(f"${number}" for number in range(1, len(constants) + 1))
    assert parsed.text == f"SELECT id FROM customer WHERE city IN ({numbers})"
    uses, _ = parameter_uses(parsed, TABLES)
    assert with_values(parsed.text, uses, dict(enumerate(quoted, 1))).count("'") == "".join(quoted).count("'")


def facts_of(text: str, rows_per_call: float = 1.0, **types: str) -> Statement:
    """Return the facts of a statement. Types are given as ``p1``; the others are integer."""
    uses, copied = parameter_uses(parsed(text), TABLES)
    known = {use.number: types.get(f"p{use.number}", "integer") for use in uses}
    return Statement(uses, known, TABLES, rows_per_call, copied)


def draws_of(text: str, rows_per_call: float = 1.0, **types: str) -> dict[int, Draw]:
    return facts_of(text, rows_per_call, **types).draw_all()


DRAWN: Mapping[str, tuple[str, list[str]]] = {
    "WHERE id = $1": (":p1", ["\\sample p1 FROM public.customer.id uniform"]),
    "WHERE city = $1": (":p1", ["\\sample p1 FROM public.customer.city frequency"]),
    "WHERE lower(email) = $1": ("lower(:p1)", ["\\sample p1 FROM public.customer.email uniform"]),
    "WHERE lower(email) = lower($1)": (":p1", ["\\sample p1 FROM public.customer.email uniform"]),
    "SELECT * FROM customer LIMIT $1": ("4", []),
    "SELECT * FROM customer OFFSET $1": ("0", []),
    "SELECT $1": ("1::integer", []),
    "SELECT date_trunc($1, born) FROM customer": ("'day'", []),
    "SELECT * FROM empty WHERE n = $1": ("1::integer", []),
    "UPDATE customer SET note = $1": ("NULL", []),
    "UPDATE customer SET mood = $1": (":p1", ["\\sample p1 FROM public.customer.mood uniform"]),
    "INSERT INTO customer (id) VALUES ($1)": ("DEFAULT", []),
    "INSERT INTO customer (id) SELECT $1": (":p1", ["\\set p1 random(1000000000, 2147483647)"]),
    "INSERT INTO customer (id) VALUES ($1) ON CONFLICT DO NOTHING": (
        ":p1",
        ["\\sample p1 FROM public.customer.id uniform"],
    ),
    "INSERT INTO customer (email) VALUES ($1)": (
        "left(md5(random()::text || clock_timestamp()::text), 20)",
        [],
    ),
}


@pytest.mark.parametrize("text", DRAWN)
def test_a_value_is_sampled_new_or_neutral(text: str) -> None:
    draw = draws_of(text, rows_per_call=3.2)[1]
    assert (draw.sql, list(draw.commands)) == DRAWN[text]


def test_a_list_has_as_many_values_as_rows_if_each_value_has_one() -> None:
    for text, sql in (
        ("WHERE id = ANY ($1)", "ARRAY[:p1, :p1_2, :p1_3]::integer[]"),
        ("WHERE city = ANY ($1)", "ARRAY[:p1]::integer[]"),
    ):
        assert draws_of(text, 3.2, p1="integer[]")[1].sql == sql
    squashed = draws_of("WHERE id IN ($1 /*, ... */)", 2.0)[1]
    assert squashed.sql == ":p1, :p1_2"
    assert len(draws_of("WHERE id = ANY ($1)", 1e9, p1="integer[]")[1].variables) == 100


@pytest.mark.parametrize(
    ("text", "type_", "sql"),
    [
        ("WHERE id::text LIKE $1", "text", "(:p1)::text"),
        ("WHERE upper(id::text) = $1", "text", "upper((:p1)::text)"),
        ("WHERE upper(id::text) = upper($1)", "text", "(:p1)::text"),
        ("WHERE id::text IN ($1 /*, ... */)", "text", "(:p1)::text"),
        ("WHERE lower(id::text) = ANY ($1)", "text[]", "ARRAY[lower((:p1)::text)]::text[]"),
        ("WHERE id = $1", "bigint", ":p1"),
        ("WHERE email = $1", "text", ":p1"),
    ],
)
def test_a_number_that_is_compared_as_text_becomes_one(text: str, type_: str, sql: str) -> None:
    assert draws_of(text, p1=type_)[1].sql == sql


def test_a_cast_to_character_keeps_all_characters() -> None:
    assert draws_of("WHERE city = ANY ($1)", p1="character[]")[1].sql == "ARRAY[:p1]::bpchar[]"
    assert draws_of("SELECT * FROM f($1)", p1="character")[1].sql == "'stub_p1'::text::bpchar"
    assert draws_of("SELECT $1", p1="character")[1].sql == "'a'::bpchar"
    assert draws_of("SELECT $1", p1="character varying")[1].sql == "'a'::character varying"


def test_the_end_of_a_range_follows_its_start_by_a_share_of_the_histogram() -> None:
    for text, end in (
        ("WHERE born BETWEEN $1 AND $2", "(:p1::date + 365)"),
        ("WHERE born < $2 AND born >= $1", "(:p1::date + 365)"),
        ("SELECT * FROM sales.item WHERE price BETWEEN $1 AND $2", "(:p1::numeric + 10.0)"),
        (
            "SELECT * FROM sales.item WHERE made_at > $1 AND made_at <= $2",
            "(:p1::timestamp with time zone + interval '36000 seconds')",
        ),
        ("SELECT * FROM sales.item WHERE line BETWEEN $1 AND $2", "(:p1::integer + 1)"),
    ):
        assert draws_of(text)[2].sql == end


def test_a_key_of_several_columns_gets_new_values_in_a_column_that_is_not_referenced() -> None:
    draws = draws_of("INSERT INTO sales.item (order_id, line) VALUES ($1, $2)")
    assert draws[1].commands == ("\\sample p1 FROM sales.item.order_id uniform",)
    assert draws[2].commands == ("\\set p2 random(1000000000, 2147483647)",)
    assert draws_of("INSERT INTO sales.item (line) VALUES ($1)")[1].sql == ":p1"


def test_an_update_of_a_key_keeps_the_key_that_it_searches() -> None:
    draws = draws_of("UPDATE customer SET id = $1, city = $2 WHERE id = $3", p2="text")
    assert (draws[1].sql, draws[3].sql) == (":p3", ":p3")


def test_a_value_has_one_draw_at_all_of_its_occurrences() -> None:
    text = "SELECT $1 FROM customer WHERE id = $1"
    draws = draws_of(text)
    replaced = with_values(text, uses_of(text), {number: draw.sql for number, draw in draws.items()})
    assert replaced == "SELECT :p1 FROM customer WHERE id = :p1"


def test_a_negative_value_begins_no_comment_and_joins_no_operator() -> None:
    for text, replaced in (
        ("UPDATE sales.item SET price=price-$1 WHERE line=$2", "price=price- :p1 WHERE line=:p2"),
        ("WHERE id!=$1 AND $2<id", "id!= :p1 AND :p2<id"),
        ("SELECT (array_agg(id))[$1:$2] FROM customer", "(array_agg(id))[:p1: :p2] FROM customer"),
    ):
        assert with_values(parsed(text).text, uses_of(text), {1: ":p1", 2: ":p2"}).endswith(replaced)


def test_a_type_written_before_a_constant_becomes_a_cast() -> None:
    text = parse_statement("SELECT * FROM customer WHERE born = date '2025-01-01'").text
    assert with_values(text, uses_of(text), {1: ":p1"}).endswith("born = CAST(:p1 AS date)")


def test_a_value_that_cannot_be_drawn_is_a_reason() -> None:
    for rows in ("(a) VALUES ($1)", "SELECT id FROM customer WHERE id = $1"):
        with pytest.raises(Unusable) as refused:
            draws_of(f"INSERT INTO link {rows}", p1="mood")
        assert (refused.value.reason, refused.value.detail) == (Reason.UNIQUE, "public.link (a)")


STUBS: Mapping[tuple[str, str], tuple[str, list[str]]] = {
    ("SELECT * FROM f($1)", "integer"): (":p1::integer", ["\\set p1 random(1, 30)"]),
    ("WHERE born > now() - $1", "interval"): ("(:p1 * interval '1 day')", ["\\set p1 random(1, 30)"]),
    ("WHERE born > now() - id * $1", "interval"): ("'1 day'::interval", []),
    ("SELECT * FROM f($1)", "text"): ("'stub_p1'::text", []),
    ("SELECT * FROM f($1)", "boolean"): ("true::boolean", []),
    ("SELECT * FROM f($1)", "mood"): ("'stub_p1'::text::mood", []),
    ("SELECT $1::mood", "mood"): ("'stub_p1'::text::mood", []),
}


@pytest.mark.parametrize(("text", "type_"), STUBS)
def test_a_value_that_nothing_shows_is_a_stub_with_a_mark(text: str, type_: str) -> None:
    draw = draws_of(text, p1=type_)[1]
    mark, *commands = draw.commands
    assert draw.is_stub
    assert mark.startswith(f"{STUB} $1 {type_}")
    assert (draw.sql, commands) == STUBS[text, type_]


@pytest.mark.parametrize(
    ("type_", "values", "sql", "commands"),
    [
        ("integer", ("30", "7"), ":p1::integer", ["\\set p1 random(7, 30)"]),
        ("integer", ("30", "30"), "30::integer", []),
        ("integer", ("12345", "-3"), ":p1::integer", ["\\set p1 random(-3, 13000)"]),
        ("numeric", ("0.0123", "2"), "(:p1 / 1000000.0)::numeric", ["\\set p1 random(12000, 2000000)"]),
        ("interval", ("1 day", "14 days"), "(:p1 * interval '1 day')", ["\\set p1 random(1, 14)"]),
        ("interval", ("02:00:00",), "(7200 * interval '1 second')", []),
        ("text", ("7", "30"), None, []),
        ("integer", ("7", None), None, []),
        ("integer", ("7", "x"), None, []),
        ("integer", ("1 day",), None, []),
        ("interval", ("1 day", "1 hour"), None, []),
        ("integer", (), None, []),
    ],
)
def test_only_numbers_and_intervals_have_the_range_of_the_log_in_two_digits(
    type_: str, values: Sequence[str | None], sql: str | None, commands: list[str]
) -> None:
    ranges = {1: LoggedRange()}
    for value in values:
        ranges[1].add(value)
    draw = replace(facts_of("SELECT * FROM f($1)", p1=type_), ranges=ranges).draw_all()[1]
    assert draw.is_stub if sql is None else (draw.sql, list(draw.commands)) == (sql, commands)


def repeated(
    texts: Sequence[str], equal: Sequence[tuple[Sequence[tuple[int, int]], bool]]
) -> dict[tuple[int, int], str]:
    """Return which parameter of a transaction repeats which variable."""
    draws = [replace(facts_of(text), prefix=f"s{place}p").draw_all() for place, text in enumerate(texts, 1)]
    return {place: draw.variables[0] for place, draw in repeated_draws(draws, equal).items()}


LOCK, CHANGE = ("WHERE id = $1 FOR UPDATE", "UPDATE customer SET city = $1 WHERE id = $2")


def test_values_of_a_transaction_that_are_equal_in_the_log_are_drawn_once() -> None:
    assert repeated([LOCK, CHANGE], [([(0, 1), (1, 2)], False)]) == {(1, 2): "s1p1"}
    repeating = replace(facts_of(CHANGE), prefix="s2p", equal={2: draws_of(LOCK)[1]})
    draw = repeating.draw_all()[2]
    assert (draw.sql, draw.commands) == (":p1", ())


def test_equal_values_of_different_columns_need_different_values_in_the_log() -> None:
    insert = "INSERT INTO sales.item (order_id, line, price) VALUES ($1, $2, $3)"
    texts = [LOCK, insert]
    assert repeated(texts, [([(0, 1), (1, 1)], False)]) == {}
    assert repeated(texts, [([(0, 1), (1, 1)], True)]) == {(1, 1): "s1p1"}


def test_a_new_value_is_not_replaced_but_repeated() -> None:
    insert = "INSERT INTO sales.item (order_id, line) VALUES ($1, $2)"
    texts = ["SELECT * FROM sales.item WHERE line = $1", insert, "SELECT * FROM sales.item WHERE line = $1"]
    assert repeated(texts, [([(0, 1), (1, 2), (2, 1)], True)]) == {(0, 1): "s2p2", (2, 1): "s2p2"}
    unnamed = "INSERT INTO customer (email) VALUES ($1)"
    texts = [unnamed, *["WHERE email = $1"] * 2]
    assert repeated(texts, [([(0, 1), (1, 1), (2, 1)], True)]) == {(2, 1): "s2p1"}


def test_a_constant_repeats_a_value_with_its_type_and_a_list_a_whole_list() -> None:
    texts = [
        "SELECT * FROM sales.item WHERE price = $1",
        "UPDATE sales.item SET price = price - $1",
        "SELECT * FROM customer LIMIT $1",
    ]
    assert repeated(texts, [([(0, 1), (1, 1), (2, 1)], True)]) == {(1, 1): "s1p1"}
    subtraction = replace(facts_of(texts[1], p1="numeric"), equal={1: draws_of(texts[0])[1]})
    assert subtraction.draw_all()[1].sql == "(:p1)::numeric"
    lists = ["WHERE id = ANY ($1)", "DELETE FROM customer WHERE id = ANY ($1)", LOCK]
    assert repeated(lists, [([(0, 1), (1, 1), (2, 1)], True)]) == {(1, 1): "s1p1"}
    both = replace(facts_of(lists[1], p1="integer[]"), equal={1: draws_of(lists[0], 2.0, p1="integer[]")[1]})
    assert both.draw_all()[1].sql == "ARRAY[:p1, :p1_2]::integer[]"


def test_a_repeated_number_is_a_text_or_has_the_unit_where_its_source_does() -> None:
    number = draws_of("WHERE id::text = $1", p1="text")[1]
    text = replace(facts_of("WHERE city = $1", p1="text"), equal={1: number})
    assert text.draw_all()[1].sql == "(:p1)::text"
    days = LoggedRange()
    for value in ("1 day", "14 days"):
        days.add(value)
    facts = facts_of("WHERE born > now() - $1", p1="interval")
    source = replace(facts, ranges={1: days}).draw_all()[1]
    assert replace(facts, equal={1: source}).draw_all()[1].sql == "((:p1 * interval '1 day'))::interval"


def test_the_end_of_a_range_follows_a_start_that_is_repeated() -> None:
    text = "WHERE born BETWEEN $1 AND $2"
    statement = replace(facts_of(text), prefix="s2p", equal={1: draws_of("WHERE born = $1")[1]})
    assert statement.draw_all()[2].sql == "(:p1::date + 365)"
