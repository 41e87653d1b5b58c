"""Damaged results files and study files: rejected in one line or read unchanged, never a traceback.

``pytest --fuzz 5000`` tries more than the default number, and ``make long-test`` 500.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from synthetic_study import Synthetic, write_study

from edited_evidence import edited
from pgdyno.cli.error_reporting import EXIT_STATUS
from pgdyno.cli.main import run_command

SEED = 20261123
MADE = Synthetic(blocks=3, slices=2, probed=True)
STUDIES = sorted((Path(__file__).parents[2] / "studies").rglob("*.toml"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "e.sqlite"
    write_study(path, MADE)
    return path


def told(path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    status = run_command(["report", str(path), "--json"])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_a_flipped_bit_is_found_or_changes_nothing(
    whole: Path, tmp_path: Path, fuzz: int, capsys: pytest.CaptureFixture[str]
) -> None:
    data, path, chance = whole.read_bytes(), tmp_path / "e.sqlite", random.Random(SEED)
    shutil.copy(whole, path)
    before = told(path, capsys)
    assert before[0] == 0
    used = [place for place, byte in enumerate(data) if byte]  # unused pages and bytes are zeros
    found = 0
    for _ in range(fuzz):
        place, bit = chance.choice(used), chance.randrange(8)
        flipped = bytearray(data)
        flipped[place] ^= 1 << bit
        path.write_bytes(flipped)
        status, out, err = told(path, capsys)
        if status == 0:
            assert out == before[1], f"byte {place}, bit {bit}: the report changed"
        else:
            assert status == 1, f"byte {place}, bit {bit}: {err}"
            assert err.startswith("pgdyno: ") and err.count("\n") == 1, err
            assert str(path) in err, err
            found += 1
    assert found > 0.8 * fuzz  # the others damage bytes of deleted values


def test_scribbled_bytes_are_found_or_change_nothing(
    whole: Path, tmp_path: Path, fuzz: int, capsys: pytest.CaptureFixture[str]
) -> None:
    data, path = whole.read_bytes(), tmp_path / "e.sqlite"
    shutil.copy(whole, path)
    before = told(path, capsys)
    for size in (1, 8, 512, 5000):
        chance = random.Random(SEED + size)
        for _ in range(fuzz // 10):
            place = chance.randrange(len(data))
            path.write_bytes((data[:place] + chance.randbytes(size) + data[place + size :])[: len(data)])
            status, out, err = told(path, capsys)
            assert status in (0, 1), err
            assert (out == before[1]) if status == 0 else err.count("\n") == 1, (size, place)


WRONG: tuple[Any, ...] = (None, True, -1, 1e308, -1e308, 2**63, "x", "", [], {}, [[]], {"a": None}, 0)
JSON_COLUMNS = (
    *(("study", column) for column in ("engine", "host", "changes", "published")),
    *(("study_case", column) for column in ("levels", "plan")),
    *(("arm", column) for column in ("server", "settings_requested", "safety", "workload", "dataset")),
    *(("trial", column) for column in ("driver", "settings")),
    *(("block", "arm_order"), ("caveat", "parameters"), ("series", "columns")),
)
NUMBERS = (
    *(("study", column) for column in ("created_unix_s", "ended_unix_s")),
    *(("slice", column) for column in ("opened_s", "counted_from_s", "closed_s", "drained_s")),
    *(("slice", column) for column in ("driver_cpu_user_s", "driver_cpu_system_s", "position")),
    *(("slice_count", column) for column in ("ok", "rolled_back", "failed", "skipped", "retried")),
    *(("interval", column) for column in ("from_s", "to_s", "executed", "latency_p99_ns", "position")),
    *(("interval_count", column) for column in ("ok", "failed")),
    *(("trial", column) for column in ("started_unix_s", "ended_unix_s", "epoch_unix_s", "restore_s")),
    *(("trial", column) for column in ("server_cpu_s", "transactions")),
    *(("trial", column) for column in ("driver_memory_bytes", "probe_cpu_s", "start_s")),
    *(("reading", "at_s"), ("reading", "took_s"), ("check_result", "p_value"), ("failure", "n")),
    *(("block", "seed"), ("block", "started_unix_s"), ("arm", "clients"), ("histogram", "n")),
)
AMOUNTS = (1e308, -1e308, -1.0, 0.0, 1e300, float("inf"), 2**63 - 1, -(2**63), 1e-308, 1e17)


def test_a_number_that_somebody_edited_is_never_a_traceback(
    whole: Path, tmp_path: Path, fuzz: int, capsys: pytest.CaptureFixture[str]
) -> None:
    chance = random.Random(SEED + 1)
    tried = [(place, amount) for place in NUMBERS for amount in AMOUNTS]
    for (table, column), amount in chance.sample(tried, min(len(tried), fuzz)):
        path = tmp_path / "e.sqlite"
        shutil.copy(whole, path)
        with edited(path) as connection:
            kind = next(
                row[2] for row in connection.execute(f"PRAGMA table_info({table})") if row[1] == column
            )
            value = int(max(min(amount, 2**63 - 1), -(2**63))) if kind == "INTEGER" else float(amount)
            one = f"(SELECT count(*) FROM {table}) < 2 OR abs(random()) % 3 = 0"
            try:
                connection.execute(f"UPDATE {table} SET {column} = ? WHERE {one}", (value,))
            except Exception:  # noqa: BLE001  # a key twice, or a constraint: SQLite refuses it
                continue
        require_no_traceback(path, f"{table}.{column} = {value}", chance, capsys)


def test_an_edited_value_of_a_wrong_type_is_never_a_traceback(
    whole: Path, tmp_path: Path, fuzz: int, capsys: pytest.CaptureFixture[str]
) -> None:
    chance = random.Random(SEED + 2)
    for _ in range(fuzz):
        path = tmp_path / "e.sqlite"
        shutil.copy(whole, path)
        table, column = chance.choice(JSON_COLUMNS)
        with edited(path) as connection:
            rows = connection.execute(f"SELECT DISTINCT {column} FROM {table}").fetchall()
            if not rows:
                continue
            (text,) = chance.choice(rows)
            value, where = with_another(json.loads(text), chance)
            connection.execute(
                f"UPDATE {table} SET {column} = ? WHERE {column} = ?", (json.dumps(value), text)
            )
        # Values that only fail in a computation are handled by the generic handler.
        require_no_traceback(path, f"{table}.{column}: {where}", chance, capsys, EXIT_STATUS)


def require_no_traceback(
    path: Path, what: str, chance: random.Random, capsys: pytest.CaptureFixture[str], *also: int
) -> None:
    form = chance.choice(("--json", "--md", "--csv"))
    status = run_command(["report", str(path), form])
    err = capsys.readouterr().err
    assert status in (0, 1, *also), f"{what}: {form}: {err}"
    assert err.count("\n") == (status != 0), what


def with_another(value: Any, chance: random.Random) -> tuple[Any, str]:
    """Return the value with one part replaced or omitted, and its position."""
    if isinstance(value, dict) and value and chance.random() < 0.85:
        key = chance.choice(sorted(value))
        if chance.random() < 0.15:
            return {k: v for k, v in value.items() if k != key}, f"without {key}"
        inner, where = with_another(value[key], chance)
        return {**value, key: inner}, f"{key}.{where}"
    if isinstance(value, list) and value and chance.random() < 0.85:
        n = chance.randrange(len(value))
        inner, where = with_another(value[n], chance)
        return [*value[:n], inner, *value[n + 1 :]], f"[{n}]{where}"
    new = chance.choice(WRONG)
    return new, repr(new)


def cut(text: str, chance: random.Random) -> str:
    return text[: chance.randrange(len(text))]


def drop(text: str, chance: random.Random) -> str:
    place = chance.randrange(len(text))
    return text[:place] + text[place + chance.randrange(1, 30) :]


def insert(text: str, chance: random.Random) -> str:
    place = chance.randrange(len(text))
    words = ('"', "[", "]", "{", "}", "=", "\n", "'''", '"""', "\0", "\\", "nan", "9" * 4400, "-1e999", "𝔘")
    more = ("[[", "[a]\n", "\r", "#", ".", ",", "é = 1\n", "{a = [" * 900, "inf", "1979-05-27", "true")
    return text[:place] + chance.choice(words + more) + text[place:]


def swap(text: str, chance: random.Random) -> str:
    lines = text.splitlines(keepends=True)
    a, b = (chance.randrange(len(lines)) for _ in range(2))
    lines[a], lines[b] = lines[b], lines[a]
    return "".join(lines)


def replace_a_value(text: str, chance: random.Random) -> str:
    lines = text.splitlines(keepends=True)
    n = chance.choice([n for n, line in enumerate(lines) if "=" in line] or [0])
    values = ["[]", "{}", "''", "-1", "1e308", "nan", "[[1]]", "true", "2020-01-01", '"x"']
    values += ["[{}]", "{a={b=1}}"]
    lines[n] = lines[n].partition("=")[0] + f"= {chance.choice(values)}\n"
    return "".join(lines)


MUTATIONS: tuple[Callable[[str, random.Random], str], ...] = (cut, drop, insert, swap, replace_a_value)


def test_a_mutated_study_file_is_never_a_traceback(
    tmp_path: Path, fuzz: int, capsys: pytest.CaptureFixture[str]
) -> None:
    chance, path = random.Random(SEED + 3), tmp_path / "study.toml"
    assert len(STUDIES) > 5
    refused = 0
    for _ in range(fuzz):
        text = chance.choice(STUDIES).read_text("utf-8")
        for _ in range(chance.randrange(1, 4)):
            text = chance.choice(MUTATIONS)(text, chance) or "\n"
        path.write_bytes(text.encode("utf-8"))
        status = run_command(["study", "check", str(path)])
        err = capsys.readouterr().err
        assert status in (0, 2), f"{err}\n{text}"
        assert all(line.startswith("pgdyno: ") for line in err.splitlines()), err
        refused += status == 2
    assert refused > fuzz / 3


REJECTED = {
    "arrays": ("a = " + "[" * 5000 + "]" * 5000, "is nested too deeply"),
    "inline tables": ("a = " + "{a = " * 5000 + "1" + "}" * 5000, "is nested too deeply"),
    "a dotted key": (".".join("a" * 30_000) + " = 1", "is nested too deeply"),
    "a dotted header": ("[" + ".".join("a" * 30_000) + "]", "is nested too deeply"),
    "a zero byte": (r'server = "/tmp\\\u0000"', r"contains a zero byte (\u0000)"),
    "a long number": (f"a = {'9' * 5000}", "limit (4300 digits)"),
    "an endless device": ("", "larger than 1 MiB"),
}


@pytest.mark.parametrize("what", REJECTED)
def test_an_excessive_study_file_is_rejected(
    tmp_path: Path, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text, message = REJECTED[what]
    path = tmp_path / "s.toml" if text else Path("/dev/zero")
    if text:
        path.write_text(f"title = 'a.b.c [[[['\n{text}\n")
    assert run_command(["study", "check", str(path)]) == 2
    assert message in capsys.readouterr().err
