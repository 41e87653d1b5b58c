"""Study files: strict parsing, and cases as the product of factors minus exclusions."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from example_studies import CORE_STUDY_FILE, read_study
from pgdyno.errors import StudyFileError, UsageError
from pgdyno.study.cases import cases_of
from pgdyno.study.schedule import seed_of
from pgdyno.study.study_file import StudyFile
from pgdyno.study.study_file_reader import examine_text
from pgdyno.workloads.pgbench.parameters import LIST, scripts_of

FACTORS: dict[str, list[Any]] = {
    "server": ["12", "13", "18.1"],
    "settings": ["@default", "work_mem=2MB"],
    "scale": [1, 2, 3],
    "variant": ["default", "select-only"],
    "clients": [1, 4],
    "protocol": ["simple", "prepared"],
}

DRIVEN: dict[str, Any] = {"protocol": ["simple", "prepared"], "clients": [1, 4]}
PLAIN: dict[str, Any] = {"server": ["17", "18"], "scale": [1], "clients": [1]}


def study_file(**changes: Any) -> StudyFile:
    whole: dict[str, Any] = {
        "title": "t",
        "compare": ["server"],
        "workload": {"kind": "pgbench"},
        "factors": {name: FACTORS[name] for name in ("server", "scale", "clients")}
        | {"variant": ["default"]},
        "run": {"budget": "10min", "repeats": 2},
    }
    return StudyFile.of(whole | changes)


EXCLUSION = st.fixed_dictionaries(
    {}, optional={name: st.lists(st.sampled_from(levels), min_size=1) for name, levels in FACTORS.items()}
).filter(bool)


@settings(max_examples=20)  # each has up to 144 cases
@given(
    st.lists(st.sampled_from(list(FACTORS)), min_size=1, max_size=2, unique=True),
    st.lists(EXCLUSION, max_size=2),
)
def test_cases_and_arms_are_the_product_minus_exclusions(
    compare: list[str], exclude: list[dict[str, list[Any]]]
) -> None:
    file = study_file(compare=compare, factors=FACTORS, exclude=exclude)
    product = [dict(zip(FACTORS, map(str, one), strict=True)) for one in itertools.product(*FACTORS.values())]

    def is_excluded(levels: dict[str, str]) -> bool:
        return any(all(levels[name] in map(str, some) for name, some in one.items()) for one in exclude)

    wanted = [levels for levels in product if not is_excluded(levels)]
    try:
        cases = cases_of(file)
    except StudyFileError as error:
        assert "only one arm" in str(error) or "every combination" in str(error)
        return
    found = [{**case.levels, **arm} for case in cases for arm in case.arms]
    assert sorted(map(sorted, (one.items() for one in found))) == sorted(
        map(sorted, (one.items() for one in wanted))
    )
    names = [case.name for case in cases]
    assert len(set(names)) == len(names)
    for case in cases:
        arms = [arm.name for arm in case.study.arms]
        assert len(set(arms)) == len(arms) == len(case.arms) >= 2
        assert [list(arm) for arm in case.arms] == [compare] * len(arms)
    assert cases_of(file) == cases


def test_the_arms_are_in_the_order_of_the_compared_factors() -> None:
    file = study_file(
        compare=["server", "settings"],
        factors={
            "clients": [1, 8],
            "settings": {"untuned": {}, "tuned": {"profiles": ["starter"], "work_mem": "8MB"}},
            "server": ["12", "13"],
        },
        workload={"kind": "tpcc", "warehouses": 2},
        settings={"jit": "off", "work_mem": "1MB", "optional": ["jit"]},
    )
    first, second = cases_of(file)
    assert [arm.name for arm in first.study.arms] == ["12, untuned", "12, tuned", "13, untuned", "13, tuned"]
    assert (first.name, second.name) == ("clients 1", "clients 8")
    assert (first.study.clients, second.study.clients) == (1, 8)
    untuned, tuned = first.study.arms[:2]
    assert dict(untuned.settings) == {"jit": "off", "work_mem": "1MB"}
    assert dict(tuned.settings) == {"jit": "off", "work_mem": "8MB"}
    assert (untuned.profiles, tuned.profiles) == ((), ("starter",))
    assert untuned.optional == ("jit",)


SETTINGS = {"settings.shared_buffers": {"small": "64MB", "large": "1GB"}, "settings.jit": [True, "off"]}


def test_a_setting_as_a_factor_is_a_setting_of_every_arm_of_its_cases() -> None:
    file = study_file(
        compare=["server", "settings"],
        factors={"server": ["12", "13"], "settings": ["@starter", "work_mem=2MB"], **SETTINGS},
        workload={"kind": "pgbench", "scale": 1},
        drive={"clients": 4},
    )
    cases = cases_of(file)
    assert [case.name for case in cases] == [
        "shared_buffers=small, jit=true",
        "shared_buffers=small, jit=off",
        "shared_buffers=large, jit=true",
        "shared_buffers=large, jit=off",
    ]
    for case in cases:
        size = {"small": "64MB", "large": "1GB"}[case.levels["settings.shared_buffers"]]
        of_case = {"shared_buffers": size, "jit": case.levels["settings.jit"]}
        starter, sized = case.study.arms[:2]
        assert starter.profiles == ("starter",) and starter.settings == of_case
        assert sized.settings == {"work_mem": "2MB", **of_case}


def test_settings_on_one_server_are_the_arms_if_they_are_compared() -> None:
    on_one: dict[str, Any] = {"workload": {"kind": "pgbench", "scale": 1}, "drive": {"clients": 4}}
    file = study_file(compare=list(SETTINGS), server="15", factors=SETTINGS, **on_one)
    (study,) = (case.study for case in cases_of(file))
    assert [arm.name for arm in study.arms][:2] == [
        "shared_buffers=small, jit=true",
        "shared_buffers=small, jit=off",
    ]
    assert [dict(arm.settings) for arm in study.arms][2:] == [
        {"shared_buffers": "1GB", "jit": "true"},
        {"shared_buffers": "1GB", "jit": "off"},
    ]
    with pytest.raises(StudyFileError, match=r'compare = \["settings.shared_buffers", "settings.jit"\]'):
        cases_of(study_file(factors={"server": ["15"], **SETTINGS}, **on_one))


def test_a_table_may_list_its_levels() -> None:
    listed = study_file(factors={"server": {"levels": ["15", "16"]}, "scale": [1], "clients": [1]})
    assert listed == study_file(factors={"server": ["15", "16"], "scale": [1], "clients": [1]})


def test_each_case_has_its_share_of_the_budget_and_its_own_seed() -> None:
    cases = cases_of(study_file())
    assert len(cases) == 6
    assert {case.study.budget_s for case in cases} == {100.0}
    assert len({case.study.seed for case in cases}) == 6
    fewer = study_file(factors={**study_file().model_dump()["factors"], "scale": [2]})
    same = {case.name: case.study.seed for case in cases_of(fewer)}
    assert same == {case.name: case.study.seed for case in cases if case.name in same}
    assert seed_of(1, "a") != seed_of(2, "a")


def test_a_variant_is_applied_over_the_file() -> None:
    fixed = {"kind": "pgbench", "variant": "skip-some-updates", "indexes": []}
    file = study_file(workload=fixed, factors=PLAIN)
    workload = cases_of(file)[0].study.workload
    assert workload.kind == "pgbench"
    assert workload.protocol == "prepared" and workload.indexes == ()


def test_arms_that_are_driven_differently_have_a_driving_each() -> None:
    file = study_file(compare=["protocol", "clients"], server="18", factors={"scale": [1], **DRIVEN})
    (study,) = (case.study for case in cases_of(file))
    assert [arm.name for arm in study.arms] == [
        "protocol simple, clients 1",
        "protocol simple, clients 4",
        "protocol prepared, clients 1",
        "protocol prepared, clients 4",
    ]
    drivings = [study.driving(n) for n in range(4)]
    assert [one.clients for one in drivings] == [1, 4, 1, 4]
    assert [one.workload.to_drive()["protocol"] for one in drivings] == ["simple"] * 2 + ["prepared"] * 2
    assert {one.discard_s for one in drivings} == {study.discard_s}


@pytest.mark.parametrize(
    ("run", "stops"),
    [
        ({"budget": "1h", "window": "10s"}, True),
        ({"repeats": 20, "window": "10s"}, True),
        ({"repeats": 5, "window": "10s"}, False),  # one analysis, after the last block
        ({"budget": "1h", "window": "10s", "stop": "budget"}, False),
        ({"repeats": 20, "window": "10s", "schedule": "sequential"}, False),
    ],
)
def test_a_study_stops_on_its_verdict_unless_there_is_only_one_analysis(
    run: dict[str, object], stops: bool
) -> None:
    for case in cases_of(study_file(run=run, factors=PLAIN)):
        assert case.study.stops_on_verdict is stops


def test_arms_with_different_data_cannot_share_a_warm_up() -> None:
    file = study_file(
        compare=["scale"],
        factors={"scale": [1, 2], "clients": [1]},
        server="18",
        warmup_workload={"scripts": ["select-only"]},
    )
    with pytest.raises(StudyFileError, match="requires arms with the same data"):
        cases_of(file)


@pytest.mark.parametrize(("key", "value"), [("extension", "/src/demo"), ("wal_dir", "/mnt/wal")])
def test_an_extension_and_a_wal_directory_belong_to_the_server_of_an_arm(key: str, value: str) -> None:
    factors = {"server": {"a": "18", "b": f"18,{key}={value}"}, "scale": [1], "clients": [1]}
    (case,) = cases_of(study_file(factors=factors | {"variant": ["default"]}))
    assert [getattr(arm, key) for arm in case.study.arms] == ["", value]
    with pytest.raises(StudyFileError, match=f"{key} is no setting: give it with the server"):
        cases_of(study_file(factors=factors | {"settings": ["jit=off", f"{key}={value}"]}))


def test_a_password_has_no_place_in_a_file() -> None:
    text = 'title = "t"\ncompare = ["clients"]\nfactors.clients = [1, 2]\nrun = {budget = "5min"}\n'
    text += 'workload = {kind = "tpcc", warehouses = 1}\n'
    # Also in an excluded level, or written with escapes.
    excluded = 'factors.server = {a = "18", b = "host=x pass\\u0077ord=y"}\nexclude = [{server = "b"}]\n'
    for server, key in (('server = "host=x password=y"', "server"), (excluded, "factors.server.b")):
        _, problems = examine_text(text + server, "x")
        assert problems == [f"x: {key}: must not contain a password: put it in ~/.pgpass"]


def test_a_file_goes_through_json_and_back() -> None:
    file = read_study(CORE_STUDY_FILE, "x.toml")
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
    lines = CORE_STUDY_FILE.splitlines()
    for n, line in enumerate(lines):
        key, equals, _ = line.partition(" = ")
        if equals:
            text = "\n".join([*lines[:n], f"{key} = {literal}", *lines[n + 1 :]])
            _, problems = examine_text(text, "x.toml")
            assert all(re.fullmatch(r"x\.toml: .+", problem) for problem in problems), problems


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "scripts: is missing"),
        ("scripts = []", "scripts: must not be empty"),
        ("[[scripts]]\nfile = '../a.sql'", r"scripts\.0\.file: must match"),
        ("[[scripts]]\nfile = 'a.sql'\nweight = -1", r"scripts\.0\.weight"),
        ("[[scripts]]\nfile = 'a.sql'\nshare = 1.5", r"scripts\.0\.share"),
        ("[[scripts]]\nfile = 'a.sql'", "cannot read the script .*a.sql: No such file"),
        ("scripts = [", "is not valid TOML"),
    ],
)
def test_a_wrong_list_is_refused_with_its_place(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / LIST).write_text(text)
    with pytest.raises(UsageError, match=message):
        scripts_of((), [str(tmp_path)])


def test_a_directory_without_list_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has no workload\.toml"):
        scripts_of((), [str(tmp_path)])
