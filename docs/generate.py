"""Writes what repeats what the code says: docs/cli.md, docs/caveats.md and studies/study.schema.json.

    python docs/generate.py

tests/unit/test_docs.py fails when a page is out of date.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import typer
from typer.testing import CliRunner

from pgdyno.analysis.telemetry.own_values import EVERYWHERE
from pgdyno.analysis.telemetry.quantities import OF_TRIALS, Quantity
from pgdyno.analysis.telemetry.quantities_of_parts import OF_RELATIONS, OF_SAMPLES, OF_STATEMENTS, Told
from pgdyno.caveats import WORDINGS, Code
from pgdyno.cli.main import app
from pgdyno.cli.pgbench import NAME
from pgdyno.study.schema import schema

DOCS = Path(__file__).parent
PACKAGE = DOCS.parent / "python" / "pgdyno"
PGBENCH_HELP = DOCS.parent / "crates" / "engine" / "src" / "pgbench" / "command" / "help.txt"
WIDTH = 80

CLI_BEGINS = """# The command line

<!-- Made by docs/generate.py from the program's own help: change the help, then run it again. -->

Results go to standard output, progress and messages to standard error; `--json` makes a result one JSON
document. Durations are numbers with a unit: `200ms`, `1s`, `1.5min`, `12h`; a bare number is in seconds (in
days for `cache prune`). What an arm can be: [Arms](arms.md). What to do with the file that `compare` leaves:
[Evidence and reports](evidence.md).

| exit status | meaning |
|---|---|
| 0 | done, whatever the verdict is, unless `--fail-if` asks |
| 1 | failed, or a condition of `check` does not hold |
| 2 | the command line is wrong; one line on standard error says what |
| 3 | a condition of `--fail-if` holds ([Gates](gates.md)); everything was measured, shown and written |
| 70 | an error inside pgdyno: one line says which, and in which file its traceback is |
| 130, 143, 129 | stopped by Ctrl-C, SIGTERM, SIGHUP; the evidence has what was measured |

No wait for a server is without a limit. The error names what was waited for, and how long:

| wait | limit |
|---|---|
| a login | 15 s, or `connect_timeout` of the DSN; 30 s for a client, with all that it prepares |
| a statement of pgdyno | 30 s, unless the server answers a second connection; 6 hours at most |
| the rest of an answer that has begun | 300 s |
| a transaction | 30 s after its slice ends; then it is cancelled and counted as failed (`abandoned`) |
| anything, after the first Ctrl-C, SIGTERM or SIGHUP | about 5 s; a second signal ends at once |

TCP connections have keepalives (30 s) and a `tcp_user_timeout` (60 s), unless the DSN sets them.

| environment variable | meaning |
|---|---|
| `PGDYNO_CACHE` | where servers, datasets and live data directories are kept ([Arms](arms.md)) |
| `PGDYNO_ENGINE` | the engine's program, where it is not beside `pgdyno` |
| `PGPASSWORD`, `PGPASSFILE`, `PGSSLMODE`, … | as libpq has them, for DSNs (but no service files) |
| `NO_COLOR` | no colours |
"""

CAVEATS_BEGIN = """# Caveats

<!-- Made by docs/generate.py from python/pgdyno/caveats.py: change the wording there, then run it again. -->

A caveat is a doubt about a trial or a study. The list is closed: a doubt has one name and one sentence, so
that caveats can be counted and searched for. Every report for people shows them with their remedies, and
`--json` has them under `caveats` by the names given here. Words in *italics* are filled in. No caveat stops a
study, and none can be switched off.
"""

WORDED_IN = (PACKAGE / "caveats.py", PACKAGE / "caveats_of_the_machine.py")

NOT_YET = "*Not looked for yet.* "


def cli_page() -> str:
    """Every command's help, as it is printed."""
    sections = [f"## {' '.join(('pgdyno', *path))}\n\n```text\n{_help(path)}\n```\n" for path in _commands()]
    return "\n".join([CLI_BEGINS, *sections])


def _commands() -> Iterator[tuple[str, ...]]:
    """The path of every command, a group before what is in it."""
    pending: list[tuple[tuple[str, ...], object]] = [((), typer.main.get_command(app))]
    while pending:
        path, command = pending.pop(0)
        yield path
        within = getattr(command, "commands", {})
        pending = [((*path, name), one) for name, one in within.items()] + pending


def _help(path: tuple[str, ...]) -> str:
    if path == ("pgbench",):
        return PGBENCH_HELP.read_text("utf-8").replace("pgbench-program", NAME).rstrip()
    done = CliRunner().invoke(app, [*path, "--help"], prog_name="pgdyno", terminal_width=WIDTH)
    if done.exit_code != 0:
        raise RuntimeError(f"{path}: {done.output}")
    return "\n".join(line.rstrip() for line in done.output.strip().splitlines())


def caveats_page() -> str:
    """Code, sentence and remedy of every caveat."""
    raised = _raised()
    sections = [
        f"## {code}\n\n{'' if code.name in raised else NOT_YET}{_filled_in(wording.sentence)}\n\n"
        f"**Remedy.** {_filled_in(wording.remedy)}\n"
        for code, wording in WORDINGS.items()
    ]
    return "\n".join([CAVEATS_BEGIN, *sections])


def _raised() -> set[str]:
    """The names of the codes that some module uses: all but the one that words them."""
    pattern = re.compile(r"\bCode\.([A-Z_]+)\b")
    modules = (path for path in PACKAGE.rglob("*.py") if path not in WORDED_IN)
    return {name for path in modules for name in pattern.findall(path.read_text("utf-8"))}


def _filled_in(text: str) -> str:
    return re.sub(r"\{(\w+)\}", lambda found: f"*{found[1].replace('_', ' ')}*", text).replace(" --", " \\--")


def schema_page() -> str:
    """What editors know of study files."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


METRICS_BEGIN = """# Metrics

<!-- Made by docs/generate.py from python/pgdyno/analysis: change the definitions, then run it again. -->

Every number that pgdyno compares has a key, by which tables, JSON and CSV name it and a study file's
published tables ask for it (`metric = "wal.bytes_per_tx"`). Δ is the difference between the readings at the
two ends of the measured part; columns are named as in PostgreSQL 18, whatever the server; MiB are 2²⁰ bytes.

- **What a server does not count has no number**, and neither has a time that it was not asked to take
  (`track_io_timing`). Counters that were reset in between give none either, with a
  [caveat](caveats.md#statistics-reset).
- **Sums over statements** are of those that clients sent: what runs inside of a function is in the numbers
  of the statement that called it (from 14 on, which tells them apart).
- **Counters arrive late**: a reading may lack up to a second of each client's work, at the first end as at
  the last ([what is exact, and what lags](telemetry.md#read-before-and-after)). In windows of seconds that
  shows.
- **Per second** is of the time for which the arm was driven: with `slices` a part of the time only.
"""


def metrics_page() -> str:
    """Every metric by its key."""
    everywhere = [(of.key, of.name, of.unit, of.better, "by the driver, and CPU clocks") for of in EVERYWHERE]
    groups = [
        ("Of a trial, by the driver", "", everywhere),
        ("Of a trial, by probes", "", [_told(of) for of in OF_TRIALS]),
        (
            "Of each table and index",
            "In JSON and CSV its name stands after a colon.",
            map(_told, OF_RELATIONS),
        ),
        (
            "Of each statement",
            "pg_stat_statements, where it is loaded. In JSON and CSV its text stands after a colon. The "
            "standard deviation is that of all calls, as pg_stat_statements has it.",
            map(_told, OF_STATEMENTS),
        ),
        (
            "Of what is sampled, and of starts",
            "Disk and pressure are the machine's: with `slices` only where a slice has several samples. Of "
            "`wait.share` the event stands after a colon.",
            map(_told, OF_SAMPLES),
        ),
    ]
    return "\n".join([METRICS_BEGIN, *(_metrics_table(*group) for group in groups)])


def _told(of: Quantity | Told) -> tuple[str, str, str, str, str]:
    text = of.text if isinstance(of, Told) else of.formula.text
    return of.key, of.name, of.unit, of.better, text


def _metrics_table(title: str, note: str, rows: Iterable[tuple[str, ...]]) -> str:
    lines = [f"| `{key}` | {name} | {unit} | {better} | {text} |" for key, name, unit, better, text in rows]
    head = ["| key | what | unit | better | how |", "|---|---|---|---|---|"]
    return "\n".join([f"## {title}\n", *([f"{note}\n"] if note else []), *head, *lines, ""])


PAGES = {
    "cli.md": cli_page,
    "caveats.md": caveats_page,
    "metrics.md": metrics_page,
    "../studies/study.schema.json": schema_page,
}


def main() -> None:
    """Writes every page."""
    assert set(WORDINGS) == set(Code)
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
