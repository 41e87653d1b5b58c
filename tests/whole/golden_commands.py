"""Golden texts of command lines: what they plan, print and refuse, in tests/data/golden/commands.

    make golden

renews them. A golden file has the commands of one topic, each with its output, its messages (``! …``) and
its exit status unless it is 0. A new command is a line ``$ pgdyno …`` there. All commands run in this
process, in a directory with FILES, on a MACHINE that is always the same and has no server. Where a command
would start to measure it prints its plan and ends; a plan has only the fields that differ from that of
``pgdyno compare 17 18``.
"""

from __future__ import annotations

import contextlib
import io
import json
import lzma
import os
import secrets
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import typer
from golden_reports import FOLDER, ROUNDED_TO

from pgdyno import __version__
from pgdyno.cli import console, options
from pgdyno.cli.main import run_command
from pgdyno.features.bisect import command as bisect_command
from pgdyno.features.bisect.search import Commit, SearchRecord
from pgdyno.features.cluster.ray import NodeFacts, RayNode
from pgdyno.features.crash import command as crash_command
from pgdyno.features.crash import run as crash_run
from pgdyno.features.crash_disk.plan import CrashPlan
from pgdyno.features.fleet import command as fleet_command
from pgdyno.features.hosts.fleet_record import FleetRecord
from pgdyno.measure import study_runner
from pgdyno.measure.study_runner import Request, _read_progress
from pgdyno.server import build_store
from pgdyno.study.defaults import MachineSize
from pgdyno.study.plan import Study
from pgdyno.study.study_file_reader import bundled_studies

COMMAND_FOLDER = FOLDER / "commands"
TOPICS = sorted(path.stem for path in COMMAND_FOLDER.iterdir())
PROMPT = "$ pgdyno "
MACHINE = MachineSize(8, 16 * 2**30)
FREE_BYTES = 100 * 2**30
WIDTH = 80
LINE_CHARS_MAX = 110
SHORT_CHARS_MAX = 300
SEED = 7
"""Drawn by every command without --seed."""

BASE = ("compare", "17", "18")
"""The command with whose plan other plans are compared. Its own is printed in full."""

MINE = """\
title = "Statements and scales"
compare = ["server", "settings"]
[workload]
kind = "pgbench"
protocol = "prepared"
scripts = ["select-only@9", {name = "sum.sql", text = "SELECT sum(abalance) FROM pgbench_accounts"}]
[drive]
retries = 3
[factors]
server = ["17", "18"]
scale = [1, 100]
clients = [1, 8, 20]
settings.untuned = {}
settings.tuned = {shared_buffers = "1GB", jit = true, random_page_cost = 1.1, profiles = ["./own.conf"]}
[[exclude]]
scale = 100
clients = [1, 8]
[run]
schedule = "blocks"
warmup = "5min"
window = "1h"
repeats = 3
[fit]
drop = [{factor = "clients", levels = [8]}]
notes = ["Fewer clients have shorter queues."]
"""
HISTORY = """\
title = "Vacuum after a checkpoint"
compare = ["settings.autovacuum"]
server = "18"
[initdb]
wal_segment = "64MB"
checksums = false
[workload]
kind = "tpcc"
warehouses = 10
age = 50000
[warmup_workload]
mix = "new-order=1"
[drive]
clients = 10
rate = 200
arrivals = "constant"
[factors."settings.autovacuum"]
levels = ["on", "off"]
[run]
schedule = "sequential"
warmup = "30s"
checkpoints = 2
repeats = 6
cache_state = "cold"
recovery = true
vacuum_after = true
probes = ["wal", "checkpoints"]
"""
OWN = """\
title = "Our own orders"
compare = ["server"]
[workload]
kind = "pgbench"
data = "shop.sql"
scripts = [{name = "orders.sql", text = "SELECT 1"}]
checks = [{name = "stock", text = "SELECT 1 WHERE false"}]
[drive]
clients = 4
[factors]
server = ["17", "18"]
[run]
budget = "10min"
stop = "verdict"
confidence = 0.99
margin = 0.05
[fleet]
drivers = 2
"""
PUBLISHED = """\
title = "New orders by users"
compare = ["server"]
[source]
author = "A. Author"
title = "How fast is it?"
year = 2024
where = "example.org"
[workload]
kind = "sysbench"
script = "oltp_read_only"
[factors]
server = ["17", "18"]
clients = [1, 8]
[run]
slice = "1s"
rounds = 10
repeats = 2
aa = false
[[published.tables]]
title = "Reads"
columns = [{title = "clients"}, {title = "18", levels = {server = "18"}}]
rows = [{cells = ["1", 100], levels = {clients = 1}}, {cells = ["8", 700], levels = {clients = 8}}]
"""
WRONG = """\
title = 5
compare = ["server", "settings"]
server = "host=db password=hunter2"
colour = "red"
[workload]
kind = "pgbench"
[factors]
server = ["9.6", "18"]
[run]
shedule = "blocks"
warmup = "5 minutes"
window = "-1s"
"""
MINIMAL = """\
title = "t"
compare = ["settings.jit"]
server = "18"
[workload]
kind = "tpcc"
warehouses = 1
[drive]
clients = 1
[factors]
"settings.jit" = ["on", "off"]
[run]
"""
CONFLICTS = {
    "no-end": "",
    "windows": 'window = "1s"\ntransactions = 5\nrepeats = 2',
    "slices": "transactions = 5\nrepeats = 2",
    "sequential": 'schedule = "sequential"\nwindow = "10s"\nbudget = "1h"\nstop = "verdict"',
    "rounds": "rounds = 3\nrepeats = 2",
    "capacity": 'capacity = "p99 < 20ms"\nschedule = "duet"\nbudget = "1h"',
    "unit": 'slice = "1 parsec"\nbudget = "1h"',
    "range": 'slice = "10ms"\nbudget = "1h"\nmargin = 2',
    "drivers": 'budget = "1h"\n[fleet]\ndrivers = 0',
    "long-slice": 'budget = "1h"\nslice = "1h"',
    "warmups": 'budget = "1h"\nwarmup = "1s"\nwarmup_min = "2s"',
    "generators": 'schedule = "duet"\nbudget = "1h"\n[fleet]\ndrivers = 2',
    "no-generator": 'budget = "1h"\n[fleet]\ndrivers = 0',
}
"""Last table of MINIMAL, by the name of the file."""

FILES: Mapping[str, str | bytes] = {
    "mine.toml": MINE,
    "history.toml": HISTORY,
    "own.toml": OWN,
    "published.toml": PUBLISHED,
    "wrong.toml": WRONG,
    **{f"{name}.toml": MINIMAL + lines for name, lines in CONFLICTS.items()},
    "password.toml": OWN.replace('["17", "18"]', '{a = "17", b = "host=db password=hunter2"}'),
    "reserved.toml": MINIMAL.replace("jit", "port") + 'budget = "1h"\n',
    "latin.toml": "title = 'Größe'\n".encode("latin-1"),
    "large.toml": "#" * (1 << 20) + "\n",
    "folder.toml/inside": "",
    "own.conf": "work_mem = '64MB' # comment\nmax_connections = 200\n",
    "wrong.conf": "work_mem\n",
    "system.sql": "ALTER SYSTEM SET jit = 'off';\n",
    "orders.sql": "\\set id random(1, 10)\nSELECT :id;\n",
    "report.sql": "SELECT 2;\n",
    "stock.sql": "SELECT 1 WHERE false;\n",
    "shop.sql": "CREATE TABLE goods (id int);\n",
    "workload.lua": "function event() end\n",
    "empty.sqlite": "",
    "text.sqlite": "no database\n" * 100,
    "foreign.html": "<p>by hand</p>\n",
}

strftime = time.strftime
FLEET_NODES = ("alpha", "beta")
COMMITS = [Commit(sha=f"{n:040x}", subject=f"Commit {n}") for n in range(9)]
OLD_RESULTS = Path(__file__).parents[1] / "data" / "results_version_4"
"""Results files of version 4. They were measured, except the fleet, nights and unfinished."""


class FakeCluster:
    """A Ray cluster whose nodes are suitable."""

    def __enter__(self) -> FakeCluster:
        return self

    def __exit__(self, *_: object) -> None: ...

    def nodes(self) -> list[RayNode]:
        return [RayNode(id=name, name=name, address="10.0.0.1") for name in FLEET_NODES]

    def check(self, nodes: Sequence[RayNode]) -> dict[str, NodeFacts]:
        return {node.name: NodeFacts("3", __version__, "1", node.name, 8) for node in nodes}


class Plans:
    """Prints the plan of a command in place of its execution, and ends it."""

    def __init__(self) -> None:
        self._base: dict[str, Any] = {}

    def start(self, _path: Path, request: Request, watch_for: Callable[..., Any], *_: object) -> None:
        with watch_for([arm.name for arm in request.cases[0].study.arms]):
            pass  # its heading
        cases = {
            request.name_of(case): {
                **({"levels": dict(case.levels)} if case.levels else {}),
                **({"arm levels": [dict(levels) for levels in case.arms]} if any(case.arms) else {}),
                **self._changed(case.study.without_passwords()),
            }
            for case in request.cases
        }
        self._end(title=request.title, command=request.command, changes=request.changes, cases=cases)

    def resume(self, path: Path, more_minutes: float | None, *_: object) -> None:
        done = _read_progress(path)
        self._end(
            more_minutes=more_minutes,
            cases={
                one.name: {
                    "next block": one.next_block,
                    "kept trials": len(one.kept),
                    "spent_s": one.spent_s,
                    **self._changed(one.study),
                }
                for one in done
            },
        )

    def crash(self, path: Path, plan: CrashPlan, command: str, *_: object) -> None:
        self._end(path=str(path), command=command, plan=without_empty(plan.model_dump(mode="json")))

    def bisect(self, _: Path, record: SearchRecord, *_more: object) -> None:
        other = record.model_dump(mode="json", exclude={"study", "commits"})
        commits = [commit.subject for commit in record.commits]
        self._end(**other, commits=commits, study=self._changed(record.study))

    def fleet(
        self, _: object, _hosts: object, path: Path, record: FleetRecord, *_more: object, **of: Any
    ) -> None:
        shown = without_empty(record.model_dump(mode="json", exclude={"text"}))
        self._end(path=str(path), **shown, **of)

    def _changed(self, study: Study) -> dict[str, Any]:
        """Return the fields that differ from those of the base. The base has all fields."""
        plan = study.model_dump(mode="json")
        base, self._base = self._base, self._base or plan
        if plan == base:
            return without_empty(plan)
        return {key: without_empty(of) for key, of in plan.items() if of != base.get(key)}

    def _end(self, **plan: Any) -> None:
        """Print the plan. Cases after the first have the fields in which they differ from it."""
        first: dict[str, Any] = {}
        for name, case in plan.get("cases", {}).items():
            plan["cases"][name] = {key: of for key, of in case.items() if of != first.get(key)}
            first = first or case
        sys.stdout.write(f"{json_lines({key: of for key, of in plan.items() if of})}\n")
        raise typer.Exit


def without_empty(value: Any) -> Any:
    """Return the value without members of objects that are empty or False."""
    if isinstance(value, dict):
        shown = {key: without_empty(of) for key, of in value.items()}
        return {key: of for key, of in shown.items() if of or (of == 0 and of is not False)}
    return [without_empty(of) for of in value] if isinstance(value, list) else value


def json_lines(value: Any, indent: str = "") -> str:
    """Return JSON with rounded numbers, in which each list and object that fits has one line."""
    if isinstance(value, float):
        return repr(float(f"{value:.{ROUNDED_TO}g}"))
    on_one_line = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict | list) or len(indent + on_one_line) <= LINE_CHARS_MAX:
        return on_one_line
    below = indent + " "
    if isinstance(value, dict):
        parts = [f"{json.dumps(key)}: {json_lines(of, below)}" for key, of in value.items()]
    else:
        parts = [json_lines(of, below) for of in value]
    begin, end = "{}" if isinstance(value, dict) else "[]"
    lines = ",\n".join(below + part for part in parts)
    return f"{begin}\n{lines}\n{indent}{end}"


def outline(part: Any) -> Any:
    """Return the short members of a report in JSON, and the number of members of the long ones."""
    if isinstance(part, list):
        return [outline(of) for of in part]
    shown = {}
    for key, of in part.items():
        if len(json.dumps(of)) <= SHORT_CHARS_MAX:
            shown[key] = of
        else:
            shown[key] = outline(of) if key in {"study", "cases"} else len(of)
    return shown


def _strftime(form: str, *when: time.struct_time) -> str:
    """Return the text of a time; TIME for the present one in the name of a file."""
    return strftime(form, *when) if when else form.replace("%Y%m%d-%H%M%S", "TIME")


@contextlib.contextmanager
def _machine(folder: Path) -> Iterator[None]:
    """Context in which each machine is the same, and what would be measured is printed."""
    plans = Plans()
    environ = {
        "HOME": str(folder / "home"),
        "PGDYNO_CACHE": str(folder / "cache"),
        "XDG_STATE_HOME": str(folder / "state"),
        "TMPDIR": str(folder),
        "PATH": "",
    }
    usage = SimpleNamespace(free=FREE_BYTES)
    with contextlib.ExitStack() as stack:
        for patched in (
            patch.dict(os.environ, environ, clear=True),
            patch.object(options, "machine_size", lambda: MACHINE),
            patch.object(shutil, "disk_usage", lambda _: usage),
            patch.object(build_store, "INSTALL_PATTERNS", ()),
            patch.object(crash_run, "missing_for_power_cuts", lambda _: []),
            patch.object(secrets, "randbelow", lambda _: SEED),
            patch.object(time, "strftime", _strftime),
            *(patch.multiple(stream, _width=WIDTH, _height=25) for stream in (console.out, console.err)),
            patch.object(study_runner, "start_study", plans.start),
            patch.object(study_runner, "resume_study", plans.resume),
            patch.object(crash_command, "run_crash_test", plans.crash),
            patch.object(bisect_command, "read_commits", lambda *_: COMMITS),
            patch.object(bisect_command, "run_bisect", plans.bisect),
            patch.object(fleet_command, "RayCluster", lambda _: FakeCluster()),
            patch.object(fleet_command, "run_fleet", plans.fleet),
            contextlib.chdir(folder / "work"),
        ):
            stack.enter_context(patched)
        _run(BASE)
        yield


def _run(words: Sequence[str]) -> tuple[int, str, str]:
    """Run a command; return its exit status, output and messages."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with (
        patch.object(sys, "argv", ["pgdyno", *words]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        status = run_command(words)
    written = [stream.buffer.getvalue().decode() for stream in (out, err)]  # type: ignore[attr-defined]
    return status, *written


@cache
def old_results() -> Mapping[Path, bytes]:
    """Return the old results files by their paths below OLD_RESULTS."""
    found = {}
    for path in OLD_RESULTS.rglob("*.*"):
        place, content = path.relative_to(OLD_RESULTS), path.read_bytes()
        if path.suffix == ".xz":
            place, content = place.with_suffix(""), lzma.decompress(content)
        found[place] = content
    return found


def write_files(folder: Path) -> None:
    """Write FILES and the old results files below a directory."""
    for name in ("work", "home", "state"):
        (folder / name).mkdir()
    for name, content in FILES.items():
        path = folder / "work" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    for path, old in old_results().items():
        target = folder / "work" / "old" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(old)


def commands_of(topic: str) -> list[str]:
    """Return the command lines of a topic."""
    lines = (COMMAND_FOLDER / f"{topic}.txt").read_text("utf-8").splitlines()
    return [line.removeprefix(PROMPT) for line in lines if line.startswith(PROMPT)]


def commands_text(topic: str) -> str:
    """Return the golden text of a topic."""
    parts = []
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made).resolve()
        folder.chmod(0o755)  # the account of servers enters the cache
        write_files(folder)
        with _machine(folder):
            for command in commands_of(topic):
                status, out, err = _run(shlex.split(command))
                if command.startswith(("report", "history")) and "--json" in command and not status:
                    out = json_lines(outline(json.loads(out)))
                lines = [f"{PROMPT}{command}", *out.splitlines(), *(f"! {line}" for line in err.splitlines())]
                lines += [f"exit status {status}"] if status else []
                parts.append("\n".join(line.rstrip() for line in lines) + "\n")
    text = "\n".join(parts).replace("\u00a0", " ")
    for place, name in ((folder / "work", "."), (folder, "FOLDER"), (bundled_studies(), "STUDIES")):
        text = text.replace(str(place), name)
    return text


def main() -> None:
    """Write every golden file."""
    for topic in TOPICS:
        (COMMAND_FOLDER / f"{topic}.txt").write_text(commands_text(topic), encoding="utf-8")


if __name__ == "__main__":
    main()
