"""Strict parsing of study files: errors have the line and the path of the key."""

import json
import re

import pytest

from example_studies import read_study
from pgdyno.errors import UsageError
from pgdyno.study.cases import cases_of
from pgdyno.study.study_file import StudyFile
from pgdyno.study.study_file_reader import examine_text

WHOLE = """\
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

# Replaced text in WHOLE, its replacement, and the message.
WRONG = {
    "toml": ('title = "a study"', "title = ", ["x.toml:1: invalid value"]),
    "toml at the end": ("drop = [{factor", "drop = [[", ["x.toml:24: unclosed array"]),
    "unknown key": (
        'title = "a study"',
        'title = "a study"\ntitel = 1',
        ["x.toml:2: titel: unknown key: did you mean title?"],
    ),
    "unknown key below": (
        'schedule = "blocks"',
        'shedule = "blocks"',
        ["x.toml:19: run.shedule: unknown key: did you mean schedule?"],
    ),
    "missing": ('title = "a study"\n', "", ["x.toml:1: title: is missing"]),
    "type": ('title = "a study"', "title = 1", ["x.toml:1: title: must be a string in quotes"]),
    "no limit": (
        "repeats = 3",
        'repeats = 3\ncapacity = "20ms"',
        ['x.toml:23: run.capacity: must be a latency limit, for example "p99 < 20ms"'],
    ),
    "a limit with two rates": (
        "[run]",
        '[factors.rate]\na = 1\nb = 2\n[run]\ncapacity = "p99 < 20ms"',
        ["x.toml:22: run.capacity: requires at least 3 levels of rate, as a factor that is not compared"],
    ),
    "slices too short for a limit": (
        '[run]\nschedule = "blocks"',
        '[factors.rate]\na = 1\nb = 2\nc = 3\n[run]\nslice = "300ms"\ncapacity = "p50 < 20ms"',
        ["x.toml:24: run.capacity: requires slices of at least 20 times the limit: increase slice"],
    ),
    "window too short for a limit": (
        "[run]",
        '[factors.rate]\na = 0.1\nb = 0.2\nc = 0.3\n[run]\ncapacity = "p99 < 1s"',
        [
            "x.toml:23: run.capacity: requires 1000 transactions in a window at every rate: increase window "
            "or the lowest rate"
        ],
    ),
    "choice": (
        'schedule = "blocks"',
        'schedule = "block"',
        ["x.toml:19: run.schedule: must be 'slices', 'duet', 'blocks' or 'sequential'"],
    ),
    "duet": (
        'schedule = "blocks"',
        'schedule = "duet"',
        [
            "x.toml:19: run.schedule: the schedule duet requires exactly 2 arms (got 4): "
            "use the schedule slices"
        ],
    ),
    "duration": (
        '"5min"',
        '"5 minutes"',
        [
            "x.toml:20: run.warmup: '5 minutes' is not a duration: use a number with one of the units "
            "us, ms, s, min, h, d"
        ],
    ),
    "negative": (
        '"5min"',
        "-1",
        ['x.toml:20: run.warmup: must be a duration, such as "5min", or a number of seconds'],
    ),
    "no window": ('window = "1h"', 'window = "0s"', ["x.toml:21: run.window: must be greater than 0"]),
    "two windows": (
        'window = "1h"',
        'window = "1h"\ntransactions = 5',
        ["x.toml:22: run.transactions: cannot be combined with window: remove one of them"],
    ),
    "transactions in slices": (
        'schedule = "blocks"\nwarmup = "5min"\nwindow = "1h"',
        "transactions = 5",
        [
            "x.toml:19: run.transactions: requires the schedule blocks or sequential, "
            "because slices have a length in time"
        ],
    ),
    "no end": (
        "repeats = 3",
        "",
        ["x.toml:18: run: has no end: set repeats (blocks per case), budget, or both"],
    ),
    "no length": (
        'window = "1h"',
        "",
        ["x.toml:18: run: has no window: set window, transactions, checkpoints, rounds or budget"],
    ),
    "odd rounds": (
        'schedule = "blocks"\nwarmup = "5min"\nwindow = "1h"',
        "rounds = 3",
        ["x.toml:19: run.rounds: must be even: each round is followed by its mirror image"],
    ),
    "compare": (
        '["server", "settings"]',
        '["server", "setting"]',
        ["x.toml:2: compare[1]: unknown factor: did you mean settings?"],
    ),
    "compare twice": (
        '["server", "settings"]',
        '["server", "server"]',
        ["x.toml:2: compare[1]: names server twice"],
    ),
    "workload": (
        'kind = "pgbench"',
        'kind = "ycsb"',
        ["x.toml:4: workload.kind: unknown workload; available: tpcc, pgbench, sysbench"],
    ),
    "no workload": (
        'kind = "pgbench"\n',
        "",
        ["x.toml:3: workload: kind is missing; available: tpcc, pgbench, sysbench"],
    ),
    "parameter": (
        'protocol = "prepared"',
        'protokol = "prepared"',
        ["x.toml:5: workload.protokol: unknown parameter of pgbench: did you mean protocol?"],
    ),
    "parameter's value": (
        'protocol = "prepared"',
        'protocol = "prepare"',
        ["x.toml:5: workload.protocol: must be 'simple', 'extended' or 'prepared'"],
    ),
    "parameter of the other": (
        'kind = "pgbench"\nprotocol = "prepared"',
        'kind = "tpcc"',
        [
            "x.toml:9: factors.scale: unknown factor: did you mean calls?",
            "x.toml:10: factors.variant: unknown factor; available: server, settings, settings.NAME, "
            "clients, rate, arrivals, pacing, retries, threads, upgrade_from, upgrade_analyze, age, "
            "warehouses, calls, pipeline, isolation, mix, "
            "dialect, deviate, "
            "table_sets",
        ],
    ),
    "level": (
        "clients = [1, 8, 20]",
        "clients = [\n  1,\n  0,\n  20]",
        [
            "x.toml:20: exclude[0].clients[1]: 8: unknown level of clients; available: 1, 0, 20",
            "x.toml:27: fit.drop[0].levels[0]: 8: unknown level of clients; available: 1, 0, 20",
        ],
    ),
    "level's value": (
        "clients = [1, 8, 20]",
        "clients = [1,\n 8,\n 9000]",
        [
            "x.toml:14: factors.clients[2]: clients must be between 1 and 2000 (got 9000): "
            "use [fleet] drivers = 5, or fewer clients"
        ],
    ),
    "level's type": (
        "scale = [1, 2]",
        'scale = [1, "2"]',
        ["x.toml:10: factors.scale[1]: must be an integer"],
    ),
    "level twice": ("scale = [1, 2]", "scale = [1, 1]", ["x.toml:10: factors.scale: has the level 1 twice"]),
    "no level": (
        "scale = [1, 2]",
        "scale = []",
        ["x.toml:10: factors.scale: must be a list of levels or a table of named levels"],
    ),
    "level with a comma": (
        '"13.0"',
        '"13,jit=off"',
        [
            "x.toml:9: factors.server: level 1 requires a name of 1 to 60 characters without a comma: "
            "make the levels a table, NAME = VALUE"
        ],
    ),
    "a running server without a name": (
        '"13.0"',
        '"host=x password=y"',
        [
            "x.toml:9: factors.server[1]: a connection string requires a name: "
            "make the levels a table, NAME = VALUE"
        ],
    ),
    "server as a number": (
        '"13.0"',
        "13.0",
        ['x.toml:9: factors.server[1]: must be a server in quotes, for example "17" or "12.4"'],
    ),
    "server and settings": (
        '["12", "13.0"]',
        '{a = "12", b = "13,jit=off"}',
        ["x.toml:9: factors.server.b: settings cannot be given with the server: use the table settings"],
    ),
    "settings of a running server": (
        '["12", "13.0"]',
        '{a = "12", b = "host=x"}',
        ["x.toml:9: factors.server.b: settings cannot be given for a running server"],
    ),
    "variant": (
        '"select-only"]',
        '"select-onyl"]',
        ["x.toml:16: exclude[0].variant: select-only: unknown level of variant: did you mean select-onyl?"],
    ),
    "setting": (
        "jit = true",
        "jit = [1]",
        ["x.toml:14: factors.settings.tuned: jit must be a string, a number, true or false"],
    ),
    "setting as a factor and fixed": (
        "[run]",
        '[settings]\nwork_mem = "1MB"\n[factors."settings.work_mem"]\nlevels = ["2MB", "4MB"]\n[run]',
        ["x.toml:19: settings.work_mem: settings.work_mem is a factor: remove its value from [settings]"],
    ),
    "setting as a factor and in a set": (
        "[run]",
        '[factors."settings.jit"]\nlevels = ["on", "off"]\n[run]',
        [
            "x.toml:14: factors.settings.tuned.jit: settings.jit is a factor of its own: remove the setting "
            "from this level"
        ],
    ),
    "setting as a factor without quotes": (
        "[run]",
        '[factors.settings.work_mem]\nlevels = ["2MB", "4MB"]\n[run]',
        [
            "x.toml:18: factors.settings.work_mem: must be a table of settings; write the factor in quotes: "
            '"settings.work_mem"'
        ],
    ),
    "setting as a factor without a name": (
        "[run]",
        '[factors."settings.Work mem"]\nlevels = ["2MB", "4MB"]\n[run]',
        [
            "x.toml:18: factors.settings.Work mem: must be settings.NAME with the name of a setting in lower "
            "case, in quotes"
        ],
    ),
    "setting as a factor with sets": (
        "[run]",
        '[factors."settings.jit"]\na = {jit = "on"}\n[run]',
        ["x.toml:19: factors.settings.jit.a: must be a plain value"],
    ),
    "factor and fixed": (
        'protocol = "prepared"',
        "scale = 1",
        ["x.toml:5: workload.scale: scale is a factor: remove its value from [workload]"],
    ),
    "excludes nothing": (
        "[run]",
        '[[exclude]]\nvariant = "select-only"\nclients = 8\n[run]',
        ["x.toml:18: exclude[1]: has no effect: earlier entries exclude the same combinations"],
    ),
    "excludes an arm": (
        "[run]",
        '[[exclude]]\nserver = "12"\nscale = 2\n[[exclude]]\nscale = 2\nsettings = "tuned"\n[run]',
        [
            "x.toml:15: exclude: leaves only one arm of the case scale 2, default, clients 1: 13.0, untuned",
        ],
    ),
    "excludes all": (
        "[run]",
        "[[exclude]]\nclients = [1, 8, 20]\n[run]",
        ["x.toml:15: exclude: excludes every combination"],
    ),
    "fit leaves nothing": (
        "levels = [8]",
        "levels = [8, 1, 20]",
        ["x.toml:24: fit.drop[0].levels: would drop all levels of clients"],
    ),
    "fit of no factor": (
        'factor = "clients"',
        'factor = "client"',
        ["x.toml:24: fit.drop[0].factor: unknown factor: did you mean clients?"],
    ),
    "wal segment": (
        "[run]",
        '[initdb]\nwal_segment = "48MB"\n[run]',
        ["x.toml:19: initdb.wal_segment: must be a power of two from 1MB to 1GB"],
    ),
    "sequential by time": (
        'schedule = "blocks"',
        'schedule = "sequential"\nbudget = "1h"',
        [
            "x.toml:20: run.budget: cannot be combined with sequential, because it would shorten only the "
            "last arm: set repeats"
        ],
    ),
    "sequential by its verdict": (
        'schedule = "blocks"',
        'schedule = "sequential"\nstop = "verdict"',
        [
            "x.toml:20: run.stop: verdict cannot be combined with sequential, which completes one arm before "
            "the next: remove stop"
        ],
    ),
    "warm-up changes the data": (
        "[run]",
        "[warmup_workload]\nfillfactor = 50\n[run]",
        ["x.toml:18: warmup_workload: cannot change the data of the workload"],
    ),
    "published level": (
        "[run]",
        '[[published.tables]]\ntitle = "t"\ncolumns = [{title = "a"}]\n'
        'rows = [{cells = ["x"], levels = {server = "11"}}, {cells = ["x", 1]}]\n[run]',
        [
            "x.toml:21: published.tables[0].rows[0].levels.server: 11: unknown level of server; "
            "available: 12, 13.0",
            "x.toml:21: published.tables[0].rows[1].cells: has 2 cells for 1 columns",
        ],
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_error_is_reported_with_its_line(name: str) -> None:
    old, new, expected = WRONG[name]
    assert old in WHOLE
    _, problems = examine_text(WHOLE.replace(old, new, 1), "x.toml")
    if name.startswith("toml"):  # the message is the parser's
        assert len(problems) == 1
        assert problems[0].startswith(expected[0].rsplit(" ", 1)[0].rsplit(" ", 1)[0])
    else:
        assert problems == expected
    with pytest.raises(UsageError, match=r"^x\.toml:[0-9]+: "):
        read_study(WHOLE.replace(old, new, 1), "x.toml")


def test_a_password_has_no_place_in_a_file() -> None:
    text = 'title = "t"\ncompare = ["clients"]\nserver = "host=x password=y"\nfactors.clients = [1, 2]\n'
    _, problems = examine_text(
        text + 'workload = {kind = "tpcc", warehouses = 1}\nrun = {budget = "5min"}', "x"
    )
    assert problems == ["x:3: server: must not contain a password: put it in ~/.pgpass"]
    # Also in an excluded level, or written with escapes.
    text = (
        'title = "t"\ncompare = ["clients"]\nfactors.clients = [1, 2]\n'
        'factors.server = {a = "18", b = "host=x pass\\u0077ord=y"}\nexclude = [{server = "b"}]\n'
    )
    _, problems = examine_text(
        text + 'workload = {kind = "tpcc", warehouses = 1}\nrun = {budget = "5min"}', "x"
    )
    assert problems == ["x:4: factors.server.b: must not contain a password: put it in ~/.pgpass"]


def test_a_whole_file_has_nothing_wrong_and_says_what_it_means() -> None:
    file, problems = examine_text(WHOLE, "x.toml")
    assert file is not None and problems == []
    assert file.run.warmup_s == 300 and file.run.window_s == 3600
    case = cases_of(file)[0]
    assert case.study.warmup_s == 300
    assert case.study.rounds * case.study.slice_s == 3600
    assert case.study.blocks_max == 3
    assert case.study.retries_max == 3
    assert dict(case.study.arms[1].settings) == {
        "shared_buffers": "1GB",
        "jit": "on",
        "random_page_cost": "1.1",
        "pg_x.track": "all",
    }


def test_a_file_goes_through_json_and_back() -> None:
    file = read_study(WHOLE, "x.toml")
    assert StudyFile.of(json.loads(file.model_dump_json(by_alias=True))) == file


LITERALS = [
    "-1",
    "2.5",
    "nan",
    "true",
    '""',
    '"a,b"',
    "[]",
    "[1]",
    "[[1]]",
    "[{}]",
    "{}",
    "{a = {b = {c = 1}}}",
    "2020-01-01",
]


@pytest.mark.parametrize("literal", LITERALS)
def test_any_value_is_accepted_or_an_error_and_never_a_crash(literal: str) -> None:
    lines = WHOLE.splitlines()
    for n, line in enumerate(lines):
        key, equals, _ = line.partition(" = ")
        if equals:
            text = "\n".join([*lines[:n], f"{key} = {literal}", *lines[n + 1 :]])
            _, problems = examine_text(text, "x.toml")
            assert all(re.fullmatch(r"x\.toml:\d+: .+", problem) for problem in problems), problems
