"""Generic plans of the statements of a workload, after the measured part: the probe ``plans``.

Nothing is executed: PREPARE, then EXPLAIN without ANALYZE, in a session that is read-only. PREPARE is sent by
the extended protocol, which refuses a text with several statements, and accepts no utility statement.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import psycopg
from psycopg import sql

from pgdyno.errors import ServerError, in_one_line
from pgdyno.measure.arms import Connection, LabArm, brief_session
from pgdyno.measure.server_probes import (
    APPLICATION_NAME,
    PROBES,
    MissingObject,
    Row,
    fetch,
    installed_extension,
    set_settings,
    statement,
    statements_major,
)
from pgdyno.measure.telemetry_collection import ProbeError, ProbeKind
from pgdyno.study.plan import Study

STATEMENTS_MAX = 40
"""Maximum number of statements per trial: those with the most time, or the first ones of the scripts."""

BLOCK_SHARE_MAX = 0.005
"""Time limit of the captures of a block, as a share of its measured time. The last statement of each may take
as long again: the whole is at most 1%."""

BLOCK_S_MIN = 2.0
"""Minimum measured time of a block with plans. In a shorter one, connecting takes more than its share."""

TEXT_MAX = 1000
"""Length of the texts in ``measure/sql/statements.sql``, which identify statements."""

LINES_MAX = 200
"""Maximum number of lines of a stored plan: a table may have thousands of partitions."""

FIRST_WORDS = frozenset({"SELECT", "INSERT", "UPDATE", "DELETE", "MERGE", "VALUES", "WITH", "TABLE"})
"""Statements with a plan."""

CONDITIONS = (
    *("Index Cond", "Recheck Cond", "TID Cond", "Hash Cond", "Merge Cond", "Join Filter", "Order By"),
    *("Filter", "One-Time Filter", "Sort Key", "Presorted Key", "Group Key"),
)
"""Properties of a node in a stored plan."""


# Statements of scripts.

_TOKEN = re.compile(
    r"--[^\n]*|/\*.*?\*/|[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|\"[^\"]*\"|\$(\w*)\$.*?\$\1\$"
    r"|::|:[A-Za-z_]\w*|\\?;|\w+|.",
    re.DOTALL,
)
_META = re.compile(r"^[ \t]*\\(?!;)(?:[^\n]*\\\n)*[^\n]*$", re.MULTILINE)
_GSET = re.compile(r"\\[ga]set\b[^\n]*")


def statements_of_script(text: str) -> Iterator[str]:
    """Yield the statements of a pgbench script that have a plan, with ``$1`` … in the place of variables."""
    joined, names = "", dict[str, int]()
    for found in _TOKEN.finditer(_META.sub("", _GSET.sub(";", text)) + ";"):
        token = found[0]
        if token in (";", "\\;"):
            whole = identity(joined)
            if has_plan(whole):
                yield whole
            joined, names = "", {}
        elif token.startswith(("--", "/*")):
            joined += " "
        elif token[0] == ":" and token[1:].isidentifier():
            joined += f"${names.setdefault(token, len(names) + 1)}"
        else:
            joined += token


_BEFORE_FIRST_WORD = re.compile(r"(?:[\s(]|--[^\n]*|/\*.*?\*/)*", re.DOTALL)


def has_plan(text: str) -> bool:
    """Return whether a statement has a plan, by its first word after comments and parentheses."""
    word = re.match(r"\w+", _BEFORE_FIRST_WORD.sub("", text, count=1))
    return word is not None and word[0].upper() in FIRST_WORDS


def identity(text: str) -> str:
    """Return a statement without repeated white space, as ``statements.sql`` identifies it."""
    return " ".join(text.split())


def _recorded(connection: Connection) -> list[str]:
    """Return the statements that pg_stat_statements has, by time; empty without it. Raises psycopg.Error."""
    try:
        version, schema = installed_extension(connection, PROBES["statements"])
    except MissingObject:
        return []
    text = sql.SQL(statement("statement_texts", statements_major(version)))
    rows = fetch(connection, text.format(extension=sql.Identifier(schema), rows_max=500))
    found = [str(row["query"]) for row in rows if "queryid" in row and "query" in row]
    return [one for one in found if has_plan(one)]


# Plans.


def node_name(node: Mapping[str, Any]) -> str:
    """Return a node as the text format of EXPLAIN names it, without alias and costs."""
    kind, join = str(node["Node Type"]), str(node.get("Join Type", "Inner"))
    if kind == "Aggregate":
        kind = {"Sorted": "Group", "Hashed": "Hash", "Mixed": "Mixed"}.get(
            node.get("Strategy", ""), ""
        ) + kind
    elif kind == "ModifyTable":
        kind = str(node.get("Operation", kind))
    elif join != "Inner":
        kind = f"{kind.removesuffix(' Join')} {join} Join"
    name = f"{'Parallel ' if node.get('Parallel Aware') else ''}{kind}"
    if node.get("Partial Mode", "Simple") != "Simple":
        name = f"{node['Partial Mode']} {name}"
    if node.get("Scan Direction") == "Backward":
        name += " Backward"
    if "Index Name" in node:
        name += f" using {node['Index Name']}"
    relation = next((node[key] for key in ("Relation Name", "CTE Name", "Function Name") if key in node), "")
    return f"{name} on {relation}" if relation else name


_LITERAL = re.compile(r"'(?:[^']|'')*'|(?<![\w$.])[-+]?\d+(?:\.\d+)?(?![\w.])")


def plan_lines(node: Mapping[str, Any], depth: int = 0) -> Iterator[str]:
    """Yield the nodes of a plan and their conditions without costs and literals, indented."""
    parent = node.get("Parent Relationship")
    begin = f"{parent}: " if parent in ("InitPlan", "SubPlan") else ""
    yield f"{'  ' * depth}{'-> ' if depth else ''}{begin}{node_name(node)}"
    for key in CONDITIONS:
        if key in node:
            value = node[key] if isinstance(node[key], str) else ", ".join(map(str, node[key]))
            yield f"{'  ' * depth}     {key}: {_LITERAL.sub('?', value)}"
    for inner in node.get("Plans", ()):
        yield from plan_lines(inner, depth + 1)


def shape_of(lines: Iterable[str]) -> list[str]:
    """Return the lines of a plan without the texts of conditions, which versions print differently."""
    return [line.partition(":")[0] if is_condition(line) else line for line in lines]


def is_condition(line: str) -> bool:
    """Return whether a line of a plan is a condition of the node above it."""
    return line.strip().partition(":")[0] in CONDITIONS


def digest(lines: Iterable[str]) -> str:
    """Return the hash of a plan's shape."""
    return hashlib.sha256("\n".join(shape_of(lines)).encode()).hexdigest()[:16]


def capture(
    connection: Connection, scripts: Iterable[str], budget_s: float, begun_s: float | None = None
) -> list[Row]:
    """Return a row for each statement: its plan and the hash, or the reason for which it has none.

    The statements are those of pg_stat_statements, else of the scripts. ``begun_s``: time before connecting.
    Raises psycopg.Error if the connection is lost, MissingObject if errors would be written to the log of
    the server.
    """
    until_s = (begun_s or time.monotonic()) + budget_s
    _prepare_session(connection, budget_s)
    found = _recorded(connection)
    source = "pg_stat_statements" if found else "script"
    texts = found or [one for text in scripts for one in statements_of_script(text)]
    rows: list[Row] = []
    for text in list(dict.fromkeys(texts))[:STATEMENTS_MAX]:
        row = {"statement": identity(text)[:TEXT_MAX], "source": source}
        if time.monotonic() > until_s:
            rows.append({**row, "reason": f"the time limit of {budget_s:.2g} s was reached"})
            continue
        try:
            lines = list(plan_lines(_explained(connection, text)))
        except psycopg.Error as error:
            if connection.closed or error.sqlstate is None or error.sqlstate.startswith("57P"):
                raise
            rows.append({**row, "reason": error.diag.message_primary or in_one_line(error)})
        except MissingObject as missing:
            rows.append({**row, "reason": str(missing)})
        else:
            rows.append({**row, "hash": digest(lines), "plan": "\n".join(lines[:LINES_MAX])})
    return rows


def _prepare_session(connection: Connection, budget_s: float) -> None:
    """Make the session read-only and short. The search path and planner settings stay those of the arm."""
    connection.autocommit = True
    timeout = f"{max(1, round(1000 * budget_s))}ms"
    settings = {
        "application_name": APPLICATION_NAME,
        "default_transaction_read_only": "on",
        "statement_timeout": timeout,
        "lock_timeout": timeout,
    }
    if connection.info.server_version >= 12_00_00:
        settings["plan_cache_mode"] = "force_generic_plan"
    # Statements that cannot be explained must leave no errors in the log of the server.
    if connection.info.parameter_status("is_superuser") == "on":
        settings |= {"pg_stat_statements.track": "none", "log_min_messages": "panic"}
    elif _may_change_log(connection):
        settings["log_min_messages"] = "panic"
    else:
        raise MissingObject(
            "requires a superuser, or from 15 on GRANT SET ON PARAMETER log_min_messages: a statement that "
            "cannot be explained leaves an error in the log of the server"
        )
    set_settings(connection, settings)


def _may_change_log(connection: Connection) -> bool:
    if connection.info.server_version < 15_00_00:
        return False
    row = connection.execute(
        "SELECT /* pgdyno probe */ pg_catalog.has_parameter_privilege('log_min_messages', 'SET')"
    ).fetchone()
    return row is not None and bool(row[0])


def _explained(connection: Connection, text: str) -> Mapping[str, Any]:
    """Return the root of the generic plan. Raises psycopg.Error, MissingObject."""
    major = connection.info.server_version // 10000
    name = sql.Identifier("pgdyno_plan")
    # Binary results require the extended protocol: a text with a second statement is an error.
    prepare = sql.SQL("PREPARE {} AS {}").format(name, sql.SQL(text))
    connection.execute(prepare, binary=True)
    try:
        row = connection.execute(
            "SELECT /* pgdyno probe */ cardinality(parameter_types) FROM pg_catalog.pg_prepared_statements"
            " WHERE name = 'pgdyno_plan'"
        ).fetchone()
        n = row[0] if row else 0
        if n and major < 12:
            raise MissingObject(f"generic plans require PostgreSQL 12 or later; the server is {major}")
        if n and major >= 16:
            explain = sql.SQL("EXPLAIN /* pgdyno probe */ (GENERIC_PLAN, COSTS OFF, FORMAT JSON) {}").format(
                sql.SQL(text)
            )
        else:
            values = sql.SQL(f"({', '.join(['NULL'] * n)})" if n else "")
            explain = sql.SQL("EXPLAIN /* pgdyno probe */ (COSTS OFF, FORMAT JSON) EXECUTE {} {}").format(
                name, values
            )
        with connection.cursor() as cursor:
            plan = cursor.execute(explain, prepare=False).fetchone()
    finally:
        if not connection.closed:
            connection.execute(sql.SQL("DEALLOCATE {}").format(name))
    root: Mapping[str, Any] = plan[0][0]["Plan"] if plan else {}
    if _is_pruned(root):
        raise MissingObject(f"PostgreSQL {major} shows no partition in a generic plan")
    return root


def _is_pruned(node: Mapping[str, Any]) -> bool:
    """Return whether executing with NULL has removed partitions, which GENERIC_PLAN (16) does not do."""
    return bool(node.get("Subplans Removed")) or any(map(_is_pruned, node.get("Plans", ())))


def read_plans(arm: LabArm, study: Study) -> Sequence[Row]:
    """Return the plans of an arm. Raises ProbeError."""
    workload = study.driving(arm.index).workload
    scripts = [
        one.text for one in getattr(workload, "scripts", ()) if getattr(one, "text", None) and one.weight
    ]
    begun_s, budget_s = time.monotonic(), budget_s_of(study)
    try:
        with brief_session(arm) as connection:
            return capture(connection, scripts, budget_s, begun_s)
    except (psycopg.Error, ServerError) as error:
        raise ProbeError(in_one_line(error)) from None
    except MissingObject as missing:
        raise ProbeError(str(missing)) from None


def budget_s_of(study: Study) -> float:
    """Return the time limit of one trial. Raises ProbeError if the blocks are too short."""
    block_s = study.window_likely_s() * (1 if study.is_together else len(study.arms))
    if block_s < BLOCK_S_MIN:
        raise ProbeError(f"a block measures {block_s:.2g} s: plans require {BLOCK_S_MIN:.2g} s")
    return BLOCK_SHARE_MAX * block_s / len(study.arms)


PROBE = ProbeKind("plans", after=read_plans)
