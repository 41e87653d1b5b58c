"""Golden texts of command lines: what they plan, print and refuse, in tests/data/golden/commands.

    make golden

renews them. A golden file has the commands of one topic of COMMANDS, each with its output, its messages
(``! …``) and its exit status unless it is 0. All commands run in this process, in a directory with FILES, on
a MACHINE that is always the same and has no server. Where a command would start to measure it prints its
plan and ends; a plan has only the fields that differ from that of ``pgdyno compare 17 18``.
"""

from __future__ import annotations

import contextlib
import functools
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
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import typer
from golden_reports import FOLDER, ROUNDED_TO

from pgdyno import __version__
from pgdyno.cli import console, options
from pgdyno.cli.main import Loading, run_command
from pgdyno.features.bisect import command as bisect_command
from pgdyno.features.bisect.search import Commit, SearchRecord
from pgdyno.features.cluster.ray import NodeFacts, RayNode
from pgdyno.features.crash import command as crash_command
from pgdyno.features.crash import crash_test
from pgdyno.features.crash.plan import CrashPlan
from pgdyno.features.fleet import command as fleet_command
from pgdyno.features.fleet import coordinator
from pgdyno.features.hosts.fleet_record import FleetRecord
from pgdyno.measure import study_runner
from pgdyno.measure.study_runner import Request, _read_progress
from pgdyno.server import build_store
from pgdyno.study.plan import Study
from pgdyno.study.sizing import MachineSize
from pgdyno.study.study_file_reader import bundled_studies

COMMAND_FOLDER = FOLDER / "commands"
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
SLICES = "--schedule slices"
OLD_STUDIES = ("compare", "aa", "capacity", "sysbench", "own-data", "published", "unfinished")
"""Results files of version 4, in OLD_RESULTS. They were measured, except the fleet, nights and unfinished."""

COMMANDS: Mapping[str, Sequence[str]] = {
    "compare": [
        shlex.join(BASE),
        "compare 17 18 18,@starter --seed 3 --minutes 20 --margin 5 --confidence 99% --stop budget",
        "compare old=17.2 'new=18,@./own.conf,shared_buffers=4GB' --nearest --no-aa --on-failure stop",
        "compare 18 18 --blocks 30 --profile --probe statements --probe wal",
        "compare 18 18,@system.sql,work_mem=64MB --probe none --full --json --quiet",
        "compare 18 --sweep shared_buffers=1GB,4GB --sweep jit=on,off",
        f"compare 17 18 {SLICES} --slice 250ms --window 20s --warmup 5s..60s -c 300 -j 4",
        f"compare 17 18 {SLICES} --warmup 0s --retries 0 --isolation serializable",
        "compare 17 18 --schedule duet --slice 2s --warmup auto",
        "compare 17 18 --schedule blocks --window 2min --warmup 10s --minutes 60",
        "compare 17 18 --window checkpoints:2 --minutes 2h",
        "compare 17 18,checkpoint_timeout=1min --window checkpoints:3 --minutes 2h",
        "compare 17 18 -t 1000 --client 4",
        "compare 17 18 --capacity 'p99<20ms'",
        "compare 17 18 --capacity 'p99 < 20ms' --schedule blocks --window 30s --minutes 90",
        "compare 17 18 --rate 500 --arrivals constant",
        "compare 17 18 -R 500 --warehouses 20 --calls statements --pipeline --mix new-order=9,payment=1",
        "compare 17 18 --pacing keying-and-thinking --clients 10 --warehouses 1",
        "compare 18,dialect=spec 18,dialect=hammerdb 18,deviate=no-rollback",
        "compare 17 18 --dialect sysbench --table-sets 2 --warehouses 4",
        "compare 17 18 --workload pgbench",
        "compare 17 18 --workload pgbench -b tpcb-like -b select-only@3 -M prepared -s 50 --fillfactor 90",
        "compare 17 18 --workload pgbench -f orders.sql@3 -f report.sql -D x=1 -D y=2 --unlogged",
        "compare 17 18 --workload pgbench --variant extra-indexes --partitions 4 --partition-method hash",
        "compare 17 18 --workload pgbench -S --index 'pgbench_accounts (bid)' --foreign-keys --accounts-copy",
        "compare 17 18 --workload sysbench --script oltp_read_only --tables 8 --table-size 100000",
        "compare 17 18 --workload sysbench --script workload.lua --opt a=1 -- --point-selects=5",
        "compare 17 18 --data shop.sql -f orders.sql@3 -f report.sql --check stock.sql --no-analyze",
        "compare 18 18,data=pg_upgrade:17,analyze=off --age 100000",
        "compare 17 18,age=5000 --data pg_upgrade:16",
        "compare 'host=/run dbname=a' 'new=postgresql://ann@db.example.org/b' --into-existing",
        "compare git:~/src/postgres@master~1 git:~/src/postgres@master --build-options=--with-lz4",
        "compare 18,extension=git:~/src/pg_index@main 18 --extension ~/src/other",
        f"compare 17 18 {SLICES} --drivers 4 --cluster 10.0.0.1:6379 --on-node-loss continue -c 5000",
        "compare 17 18 --drivers a,b --evidence e.sqlite --html e.html --fail-if slower:5% --summary s.md",
        "compare 18 18,fsync=off --durability --cuts 5",
        "compare 17 18 --minutes 0.5 --schedule blocks --window 20s --blocks 2",
        "compare 17 18 19 --minutes 1",
    ],
    "run": [
        "run mine.toml",
        "run mine.toml --nearest --no-aa --minutes 90",
        "run mine.toml --fit --minutes 30",
        "run history.toml --data pg_upgrade:17",
        "run own.toml",
        "run own.toml --data other.dump --drivers 3 --cluster 10.0.0.1:6379",
        "run published.toml --durability",
        "run edb-2020-tproc-c-12-vs-13 --fit --minutes 3h",
        "run moppel-2022-a-billion-transactions --fit --minutes 30",
        "run memory-sizes --fit=anyway --minutes 10",
        "run capacity",
        "run checkpoint-settings --fit --minutes 5h",
        "run upgrade",
        "run mine.toml --fleet",
        "run mine.toml --fleet 10.0.0.1:6379 --spread cases --share-machines --minutes 60",
        "run published.toml --fleet --fit --minutes 10",
    ],
    "study": [
        "study check mine.toml history.toml own.toml published.toml upgrade",
        "study plan mine.toml",
        "study plan mine.toml --json",
        "study plan mine.toml --fit --minutes 30",
        "study plan history.toml",
        "study plan own.toml",
        "study plan published.toml --json",
        "study plan capacity",
        "study plan clients-sweep --fit",
        "study plan edb-2020-tproc-c-12-vs-13",
        "study plan memory-sizes --fit --minutes 10",
        "study plan memory-sizes --fit=anyway --minutes 10",
        "study list",
    ],
    "wrong-studies": [
        "study check wrong.toml",
        *(f"study check {name}.toml" for name in CONFLICTS),
        *(
            f"study check {name}.toml"
            for name in ("password", "reserved", "latin", "large", "folder", "absent")
        ),
        "study check upgrad",
        "study check moppel-2019",
        "run wrong.toml",
        "study plan wrong.toml --json",
    ],
    "bisect-and-crash": [
        "bisect REL_17_0 master",
        "bisect v1 v2 --build-script 'make install' --settings work_mem=64MB --minutes 60 --directory b",
        "bisect v1 v2 --workload pgbench -f orders.sql --schedule blocks --window 10s --directory c",
        "crash 18",
        "crash 17 18,fsync=off --kind server --cuts 5 --within 10s --clients 4 --seed 3 --json",
        "crash 18 --disk lying --file-system xfs --survivors torn --at commit --disk-size 2GB",
        "crash 18 --standby both --workload tpcc --scale 2 --evidence c.sqlite",
        "crash --real host=db.example.org",
    ],
    "refused": [
        "compare",
        "compare 17",
        "compare 17 18 --colour red",
        "compare 17 18,@./absent.conf",
        "compare 17 18,@./wrong.conf",
        "compare 17 18,@./folder.toml",
        "compare 17 18,work_mem=1MB,work_mem=2MB",
        "compare 17 18,jit=on,@starter",
        "compare a=17 a=18",
        "compare 17 18 postgresql://ann:hunter2@h/d",
        "compare 17 'host=/run,jit=on'",
        "compare 17 18 --clients 0",
        "compare 17 18 --clients 2001",
        "compare 17 18 --clients many",
        "compare 17 18 --minutes 0",
        "compare 17 18 --minutes nan",
        "compare 17 18 --minutes inf",
        "compare 17 18 --minutes 5parsec",
        "compare 17 18 --minutes 1 --schedule blocks --window 5min",
        "compare 17 18 --margin 0%",
        "compare 17 18 --margin wide",
        "compare 17 18 --confidence 40%",
        "compare 17 18 --confidence 101%",
        "compare 17 18 --slice 10ms",
        "compare 17 18 --slice 200s",
        "compare 17 18 --warmup ..5s",
        "compare 17 18 --warmup 5s..",
        "compare 17 18 --warmup soon",
        "compare 17 18 --warmup 5s..1s",
        "compare 17 18 --window checkpoints:0",
        "compare 17 18 --window checkpoints:",
        "compare 17 18 --window checkpoints:-1",
        "compare 17 18 --window checkpoints:1.5",
        "compare 17 18 --window 1d",
        "compare 17 18 --schedule random",
        "compare 17 18 19 --schedule duet",
        "compare 17 host=/run --schedule duet",
        "compare 17 18 --schedule duet --window checkpoints:2",
        "compare 17 18 --window checkpoints:2 --schedule slices",
        "compare 17 18 --window checkpoints:2 --slice 1s",
        "compare 17 18 --schedule duet --capacity 'p99<20ms'",
        "compare 17 18 --schedule duet --drivers 2",
        "compare 17 18 --capacity 20ms",
        "compare 17 18 --capacity 'p99<20ms' --pacing keying-and-thinking",
        "compare 17 18 --rate -1",
        "compare 17 18 --rate 9 --pacing keying-and-thinking",
        "compare 17 18 --drivers 0",
        "compare 17 18 --drivers 3 --clients 2",
        "compare 17 18 --cluster 10.0.0.1:6379",
        "compare 17 18 --probe x-ray",
        "compare 17 18 --probe wal --probe none",
        "compare 17 18 --mix new_orders=1",
        "compare 17 18 --deviate rollback",
        "compare 18 18,dialect=hammerdb --workload pgbench",
        "compare 17 18 --workload ycsb",
        "compare 17 18 --workload pgbench --variant fast",
        "compare 17 18 --variant default",
        "compare 17 18 --workload pgbench -b x",
        "compare 17 18 --workload pgbench -b select-only@-1",
        "compare 17 18 --workload pgbench --fillfactor 5",
        "compare 17 18 --workload pgbench -b s",
        "compare 17 18 --workload pgbench -f absent.sql",
        "compare 17 18 --workload pgbench -f orders.sql@x",
        "compare 17 18 --workload pgbench -D x",
        "compare 17 18 --workload pgbench -T 60",
        "compare 17 18 --workload sysbench --script absent.lua",
        "compare 17 18 --workload sysbench --opt =3",
        "compare 17 18 --data shop.sql",
        "compare 17 18 --data shop.sql --data other.sql -f orders.sql",
        "compare 17 18 --data shop.sql -f orders.sql --scale 3",
        "compare 17 18 --data 'host=h password=hunter2' -f orders.sql",
        "compare 17 18 --data postgresql://u:hunter2@h/d -f orders.sql",
        "compare 17 18 --data shop.sql -f orders.sql --index 'pgbench_accounts (bid)'",
        "compare 17 18 --no-analyze",
        "compare 17 18,data=shop.sql",
        "compare 17 18,age=old",
        "compare 17 host=/run --age 5",
        "compare 17 18 --build-options=--with-lz4",
        "compare 17 host=/run --extension ~/src/other",
        "compare 17 18 --fail-if worse",
        "compare 17 18 --fail-if slower:p98",
        "compare 17 18 --summary auto",
        "compare 17 18 --cuts 3",
        "compare 17 18 --evidence absent/e.sqlite",
        "compare 17 18 --html foreign.html",
        "compare 17 18 --resume old/compare.sqlite",
        "compare --resume absent.sqlite",
        "compare --resume text.sqlite",
        "compare --resume old/compare.sqlite --clients 9",
        "run",
        "run absent.toml",
        "run mine.toml --resume old/compare.sqlite",
        "run mine.toml --fit",
        "run mine.toml --fit=maybe --minutes 5",
        "study plan mine.toml --fit=maybe --minutes 5",
        "run own.toml --fit --minutes 5",
        "run own.toml --fleet",
        "run mine.toml --fleet --durability",
        "run mine.toml --fleet --cuts 5",
        "run history.toml --minutes 5",
        "run history.toml --data shop.sql",
        "run edb-2020-tproc-c-12-vs-13 --durability",
        "run --fleet --resume old/compare.sqlite",
        "compare 17 18 --transactions 10 --window 10s",
        "compare 17 18 --transactions 10 --window checkpoints:2",
        "compare 17 18 --transactions 10 --slice 1s",
        "compare 17 18 --transactions 10 --schedule duet",
        "compare 17 18 --into-existing",
        "compare --sweep jit=on,off",
        "compare 17 18 --sweep jit=on,off",
        "compare 17 --sweep jit",
        "compare 17 --sweep jit=on",
        "compare 17 --sweep jit=on,",
        "compare 17 --sweep jit=on,off,on",
        """compare 17 --sweep 'search_path="a,b",c'""",
        "compare 17 --sweep jit=on,off --sweep JIT=off,on",
        "compare 17,jit=on --sweep jit=on,off",
        "compare host=x --sweep jit=on,off",
        "compare 17 --sweep a=1,2,3,4,5 --sweep b=1,2,3,4",
        "compare --resume old/compare.sqlite --sweep jit=on,off",
        "compare 17 18 --arrivals poisson",
        "compare 17 18 --capacity 'p99<20ms' --rate 9",
        "compare 17 18 --workload pgbench --pacing keying-and-thinking",
        "compare 17 18 --workload pgbench --warehouses 2",
        "compare 17 18 --scale 2",
        "compare 17 18 --workload pgbench --script a.lua",
        "compare 17 18 --workload sysbench --file a.sql",
        "report old/compare.sqlite --csv e.csv",
        "report old/compare.sqlite --md --json",
        "report old/compare.sqlite --as published --json",
        "report old/compare.sqlite --as published --csv",
        "report old/compare.sqlite --as published --html p.html",
        "report old/compare.sqlite --as published --fail-if slower",
        "history . --newest 3",
        "study plan mine.toml --minutes 5",
        "doctor --calibrations --calibrate 10m",
        "doctor --calibrate 10m --strict",
        "doctor --calibrations --strict",
        "load host=/nowhere --workload pgbench --seed 1",
        "bisect v1",
        "bisect v1 v2 --minutes 0",
        "bisect v1 v2 --resume folder.toml",
        "bisect v1 v2 --settings work_mem",
        "bisect v1 v2 --build-script ''",
        "bisect v1 v2 --settings dialect=spec",
        "bisect v1 v2 --directory folder.toml",
        "bisect --resume absent",
        "crash",
        "crash 18 --kind meteor",
        "crash 18 --kind server --disk lying",
        "crash 18 --within 0.5s",
        "crash 18 --disk-size 1MB",
        "crash 18 --within soon",
        "crash 18 --disk-size large",
        "drive host=/nowhere --window soon",
        "drive host=/nowhere --window 1us",
        "compare 17 18 --slice 1parsec",
        "compare 17 18 --window -1",
        "compare 17 18 --pipeline --calls procedures",
        "compare 17 18 --data shop.sql -f orders.sql --check absent.sql",
        "compare 17 18 --data= -f orders.sql",
        "run mine.toml --data shop.sql",
        "crash 18 --at vacuum --disk full",
        "crash host=h",
        "crash --real 18",
        "crash 17 18 --kind server --evidence old/compare.sqlite",
        "report absent.sqlite",
        "report empty.sqlite",
        "report text.sqlite",
        "report old/compare.sqlite old/compare.sqlite",
        "report old/compare.sqlite old/sysbench.sqlite",
        "report old/fleet.fleet.json old/compare.sqlite",
        "report old/compare.sqlite --as published",
        "report old/crash.sqlite --fail-if slower",
        "report old/crash.sqlite --as published",
        "report old/crash.sqlite --summary s.md",
        "report old/compare.sqlite --html foreign.html",
        "history absent",
        "history folder.toml",
        "history mine.toml",
        "history old --metric p98",
        "history old --fail-if undecided",
        "load 'host=h password=hunter2'",
        "load nonsense",
        "check nonsense",
        "workload from-statements 'host=h password=hunter2' -o d",
        "doctor --strict --calibrations",
        "repport",
    ],
    "old-results": [
        *(f"report old/{name}.sqlite{form}" for name in OLD_STUDIES for form in ("", " --json")),
        *(f"compare --resume old/{name}.sqlite --minutes 5" for name in OLD_STUDIES if name != "published"),
        "run --resume old/published.sqlite",
        "report old/crash.sqlite",
        "report old/crash.sqlite --json",
        "report old/crash.sqlite --md",
        "report old/crash.sqlite --csv",
        "crash 15 15,fsync=off --kind server --cuts 9 --within 1s --clients 2 --evidence old/crash.sqlite",
        "report old/fleet.fleet.json",
        "report old/fleet.fleet.json --json",
        "report old/fleet-alpha.sqlite old/fleet-beta.sqlite --fail-if slower",
        "run --fleet --resume old/fleet.fleet.json --minutes 5",
        "report old/published.sqlite --as published",
        "report old/published.sqlite --as published --md",
        "report old/compare.sqlite --fail-if slower --fail-if slower:p99:5%",
        "report old/compare.sqlite --html e.html --summary s.md",
        "history old/nights",
        "history old/nights --json",
        "history old/nights --metric p99 --fail-if change --newest 2",
    ],
}

FLEET_NODES = ("alpha", "beta")
COMMITS = [Commit(sha=f"{n:040x}", subject=f"Commit {n}") for n in range(9)]
OLD_RESULTS = Path(__file__).parents[1] / "data" / "results_version_4"


class FakeCluster:
    """A Ray cluster whose nodes are suitable."""

    def __enter__(self) -> FakeCluster:
        return self

    def __exit__(self, *_: object) -> None: ...

    def nodes(self) -> list[RayNode]:
        return [RayNode(id=name, name=name, address="10.0.0.1", cpus=8.0) for name in FLEET_NODES]

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


build_command = Loading.__getitem__


@functools.cache
def _command(name: str) -> Any:
    """Return a command, built once: its many options take longer to build than most commands to run."""
    return build_command(Loading(), name)


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
            patch.object(Loading, "__getitem__", lambda _, name: _command(name)),
            patch.object(options, "machine_size", lambda: MACHINE),
            patch.object(shutil, "disk_usage", lambda _: usage),
            patch.object(build_store, "INSTALL_PATTERNS", ()),
            patch.object(crash_test, "missing_for_power_cuts", lambda _: []),
            patch.object(secrets, "randbelow", lambda _: SEED),
            patch.object(time, "strftime", _strftime),
            *(patch.multiple(stream, _width=WIDTH, _height=25) for stream in (console.out, console.err)),
            patch.object(study_runner, "start_study", plans.start),
            patch.object(study_runner, "resume_study", plans.resume),
            patch.object(crash_command, "run_crash_test", plans.crash),
            patch.object(bisect_command, "read_commits", lambda *_: COMMITS),
            patch.object(bisect_command, "run_bisect", plans.bisect),
            patch.object(fleet_command, "_connected", lambda _: FakeCluster()),
            patch.object(coordinator, "run_fleet", plans.fleet),
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


def write_files(folder: Path) -> None:
    """Write FILES and the old results files below a directory."""
    for name in ("work", "home", "state"):
        (folder / name).mkdir()
    for name, content in FILES.items():
        path = folder / "work" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    for path in OLD_RESULTS.rglob("*.*"):
        target = folder / "work" / "old" / path.relative_to(OLD_RESULTS)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".xz":
            target.with_suffix("").write_bytes(lzma.decompress(path.read_bytes()))
        else:
            target.write_bytes(path.read_bytes())


def commands_text(topic: str) -> str:
    """Return the golden text of a topic."""
    parts = []
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made).resolve()
        folder.chmod(0o755)  # the account of servers enters the cache
        write_files(folder)
        with _machine(folder):
            for command in COMMANDS[topic]:
                status, out, err = _run(shlex.split(command))
                if command.startswith(("report", "history")) and "--json" in command and not status:
                    out = json_lines(outline(json.loads(out)))
                lines = [
                    f"$ pgdyno {command}",
                    *out.splitlines(),
                    *(f"! {line}" for line in err.splitlines()),
                ]
                lines += [f"exit status {status}"] if status else []
                parts.append("\n".join(line.rstrip() for line in lines) + "\n")
    text = "\n".join(parts).replace("\u00a0", " ")
    for place, name in ((folder / "work", "."), (folder, "FOLDER"), (bundled_studies(), "STUDIES")):
        text = text.replace(str(place), name)
    return text


def main() -> None:
    """Write every golden file."""
    shutil.rmtree(COMMAND_FOLDER, ignore_errors=True)
    COMMAND_FOLDER.mkdir(parents=True)
    for topic in COMMANDS:
        (COMMAND_FOLDER / f"{topic}.txt").write_text(commands_text(topic), encoding="utf-8")


if __name__ == "__main__":
    main()
