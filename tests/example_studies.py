"""Studies for tests: short ones, or from the text of a study file, and mistakes in such a file."""

from __future__ import annotations

from pgdyno.errors import UsageError
from pgdyno.study.arm_spec import parse_arms
from pgdyno.study.plan import Study
from pgdyno.study.study_file import StudyFile
from pgdyno.study.study_file_reader import examine_text
from pgdyno.workloads.tpcc.parameters import TpccParameters


def read_study(text: str, name: str) -> StudyFile:
    """Return the study in the text of a file of that name. Raises UsageError with its first error."""
    file, problems = examine_text(text, name)
    if problems or file is None:
        raise UsageError(problems[0])
    return file


def make_study(**changes: object) -> Study:
    fields: dict[str, object] = {
        "title": "t",
        "arms": tuple(parse_arms(["17", "18"])),
        "workload": TpccParameters(warehouses=2),
        "clients": 4,
        "warmup_s": 2.0,
        "rounds": 4,
        "budget_s": 60.0,
        "seed": 7,
    }
    return Study.model_validate(fields | changes)


def make_file(**parts: object) -> StudyFile:
    """Return a study file of two servers and pgbench, with these tables and keys instead."""
    whole: dict[str, object] = {
        "title": "t",
        "compare": ["server"],
        "workload": {"kind": "pgbench", "scale": 1},
        "drive": {"clients": 2},
        "factors": {"server": ["17", "18"]},
        "run": {"window": "20s", "repeats": 5},
    }
    return StudyFile.of(whole | parts)


STUDY_FILE = """\
title = "a study"
compare = ["server", "settings"]
[workload]
kind = "pgbench"
protocol = "prepared"
[drive]
retries = 3
[factors]
server = ["12", "13.0"]
scale = [1, 2]
variant = ["default", "select-only"]
clients = [1, 8, 20]
settings.untuned = {}
settings.tuned = {shared_buffers = "1GB", jit = true, random_page_cost = 1.1, pg_x.track = "all"}
[[exclude]]
variant = "select-only"
clients = [1, 8]
[run]
schedule = "blocks"
warmup = "5min"
window = "1h"
repeats = 3
[fit]
drop = [{factor = "clients", levels = [8]}]
"""

CORE_STUDY_FILE = STUDY_FILE.partition("[fit]")[0]
"""Without the table of a feature."""

MISTAKES = {
    "toml": ('title = "a study"', "title = "),
    "toml at the end": ("drop = [{factor", "drop = [["),
    "unknown key": ('title = "a study"', 'title = "a study"\ntitel = 1'),
    "unknown key below": ('schedule = "blocks"', 'shedule = "blocks"'),
    "missing": ('title = "a study"\n', ""),
    "type": ('title = "a study"', "title = 1"),
    "no limit": ("repeats = 3", 'repeats = 3\ncapacity = "20ms"'),
    "a limit with two rates": ("[run]", '[factors.rate]\na = 1\nb = 2\n[run]\ncapacity = "p99 < 20ms"'),
    "slices too short for a limit": (
        '[run]\nschedule = "blocks"',
        '[factors.rate]\na = 1\nb = 2\nc = 3\n[run]\nslice = "300ms"\ncapacity = "p50 < 20ms"',
    ),
    "window too short for a limit": (
        "[run]",
        '[factors.rate]\na = 0.1\nb = 0.2\nc = 0.3\n[run]\ncapacity = "p99 < 1s"',
    ),
    "choice": ('schedule = "blocks"', 'schedule = "block"'),
    "duet": ('schedule = "blocks"', 'schedule = "duet"'),
    "duration": ('"5min"', '"5 minutes"'),
    "negative": ('"5min"', "-1"),
    "no window": ('window = "1h"', 'window = "0s"'),
    "two windows": ('window = "1h"', 'window = "1h"\ntransactions = 5'),
    "transactions in slices": ('schedule = "blocks"\nwarmup = "5min"\nwindow = "1h"', "transactions = 5"),
    "no end": ("repeats = 3", ""),
    "no length": ('window = "1h"', ""),
    "odd rounds": ('schedule = "blocks"\nwarmup = "5min"\nwindow = "1h"', "rounds = 3"),
    "compare": ('["server", "settings"]', '["server", "setting"]'),
    "compare twice": ('["server", "settings"]', '["server", "server"]'),
    "workload": ('kind = "pgbench"', 'kind = "ycsb"'),
    "no workload": ('kind = "pgbench"\n', ""),
    "parameter": ('protocol = "prepared"', 'protokol = "prepared"'),
    "parameter's value": ('protocol = "prepared"', 'protocol = "prepare"'),
    "parameter of the other": ('kind = "pgbench"\nprotocol = "prepared"', 'kind = "tpcc"'),
    "level": ("clients = [1, 8, 20]", "clients = [\n  1,\n  0,\n  20]"),
    "a cluster without load generators": ("[drive]", '[fleet]\naddress = "10.0.0.1:6379"\n[drive]'),
    "arrivals without a rate": ("[drive]", '[drive]\narrivals = "constant"'),
    "level's value": ("clients = [1, 8, 20]", "clients = [1,\n 8,\n 9000]"),
    "level's type": ("scale = [1, 2]", 'scale = [1, "2"]'),
    "level twice": ("scale = [1, 2]", "scale = [1, 1]"),
    "no level": ("scale = [1, 2]", "scale = []"),
    "level with a comma": ('"13.0"', '"13,jit=off"'),
    "a running server without a name": ('"13.0"', '"host=x password=y"'),
    "server as a number": ('"13.0"', "13.0"),
    "server and settings": ('["12", "13.0"]', '{a = "12", b = "13,jit=off"}'),
    "settings of a running server": ('["12", "13.0"]', '{a = "12", b = "host=x"}'),
    "variant": ('"select-only"]', '"select-onyl"]'),
    "setting": ("jit = true", "jit = [1]"),
    "setting as a factor and fixed": (
        "[run]",
        '[settings]\nwork_mem = "1MB"\n[factors."settings.work_mem"]\nlevels = ["2MB", "4MB"]\n[run]',
    ),
    "setting as a factor and in a set": ("[run]", '[factors."settings.jit"]\nlevels = ["on", "off"]\n[run]'),
    "setting as a factor without quotes": (
        "[run]",
        '[factors.settings.work_mem]\nlevels = ["2MB", "4MB"]\n[run]',
    ),
    "setting as a factor without a name": (
        "[run]",
        '[factors."settings.Work mem"]\nlevels = ["2MB", "4MB"]\n[run]',
    ),
    "setting as a factor with sets": ("[run]", '[factors."settings.jit"]\na = {jit = "on"}\n[run]'),
    "factor and fixed": ('protocol = "prepared"', "scale = 1"),
    "excludes nothing": ("[run]", '[[exclude]]\nvariant = "select-only"\nclients = 8\n[run]'),
    "excludes an arm": (
        "[run]",
        '[[exclude]]\nserver = "12"\nscale = 2\n[[exclude]]\nscale = 2\nsettings = "tuned"\n[run]',
    ),
    "excludes all": ("[run]", "[[exclude]]\nclients = [1, 8, 20]\n[run]"),
    "fit leaves nothing": ("levels = [8]", "levels = [8, 1, 20]"),
    "fit of no factor": ('factor = "clients"', 'factor = "client"'),
    "wal segment": ("[run]", '[initdb]\nwal_segment = "48MB"\n[run]'),
    "sequential by time": ('schedule = "blocks"', 'schedule = "sequential"\nbudget = "1h"'),
    "sequential by its verdict": ('schedule = "blocks"', 'schedule = "sequential"\nstop = "verdict"'),
    "warm-up changes the data": ("[run]", "[warmup_workload]\nfillfactor = 50\n[run]"),
    "published level": (
        "[run]",
        '[[published.tables]]\ntitle = "t"\ncolumns = [{title = "a"}]\n'
        'rows = [{cells = ["x"], levels = {server = "11"}}, {cells = ["x", 1]}]\n[run]',
    ),
}
"""Replaced text in STUDY_FILE, and its replacement."""


def with_mistake(name: str) -> str:
    old, new = MISTAKES[name]
    assert old in STUDY_FILE
    return STUDY_FILE.replace(old, new, 1)
