"""Settings: meaning of values, rejected values, profiles. The catalog is a small handmade one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgdyno.errors import UsageError
from pgdyno.server.build_catalogue import Catalogue, compiled_differences, lacks_jit
from pgdyno.server.builds import Version
from pgdyno.server.settings import (
    Definition,
    MachineResources,
    ProfileInput,
    base_settings,
    config_text,
    parse_bool,
    refuse_reserved,
    request,
    validate,
)

V18, V11 = Version(18, 4), Version(11, 5)


def define(
    name: str,
    vartype: str,
    unit: str | None = None,
    low: str | None = None,
    high: str | None = None,
    values: tuple[str, ...] = (),
    boot: str | None = None,
    context: str = "user",
) -> Definition:
    return Definition(name, vartype, unit, low, high, values, context, boot, "group", "what it is", None)


CATALOGUE = {
    one.name: one
    for one in (
        define("shared_buffers", "integer", "8kB", "16", "1073741823"),
        define("work_mem", "integer", "kB", "64", "2147483647"),
        define("wal_buffers", "integer", "8kB", "-1", "262143", boot="-1"),
        define("checkpoint_timeout", "integer", "s", "30", "86400"),
        define("max_connections", "integer", None, "1", "262143"),
        define("unix_socket_permissions", "integer", None, "0", "511"),
        define("random_page_cost", "real", None, "0", "1.79769e+308"),
        define("vacuum_cost_delay", "real", "ms", "0", "100"),
        define("fsync", "bool"),
        define("synchronous_commit", "enum", values=("local", "remote_write", "remote_apply", "on", "off")),
        define("wal_compression", "enum", values=("pglz", "lz4", "zstd", "on", "off")),
        define("wal_level", "enum", values=("minimal", "replica", "logical")),
        define("DateStyle", "string"),
        define("TimeZone", "string"),
        define("search_path", "string"),
        define("block_size", "integer", None, "8192", "8192", context="internal"),
    )
}


@pytest.mark.parametrize(
    ("name", "requested", "effective"),
    [
        ("shared_buffers", "2GB", "262144"),
        ("shared_buffers", "262144", "262144"),
        ("shared_buffers", "1.5GB", "196608"),
        ("work_mem", "20971kB", "20971"),
        ("work_mem", "4MB", "4096"),
        ("wal_buffers", "-1", "512"),
        ("wal_buffers", "4MB", "512"),
        ("checkpoint_timeout", "15min", "900"),
        ("checkpoint_timeout", "900", "900"),
        ("unix_socket_permissions", "0700", "0700"),
        ("max_connections", "0x64", "100"),
        ("random_page_cost", "1.10", "1.1"),
        ("random_page_cost", "1.123456789", "1.12346"),
        ("vacuum_cost_delay", "500us", "0.5"),
        ("fsync", "FALSE", "off"),
        ("fsync", "1", "on"),
        ("synchronous_commit", "Off", "off"),
        ("synchronous_commit", "yes", "on"),
        ("wal_compression", "on", "pglz"),
        ("wal_level", "hot_standby", "replica"),
        ("DateStyle", "ISO,MDY", "ISO, MDY"),
        ("DateStyle", "iso, mdy", "ISO, MDY"),
        ("DateStyle", "dmy", "ISO, DMY"),
        ("TimeZone", "europe/berlin", "Europe/Berlin"),
    ],
)
def test_a_value_in_effect_is_recognised_however_it_was_spelled(
    name: str, requested: str, effective: str
) -> None:
    assert CATALOGUE[name].same(requested, effective, V18)


@pytest.mark.parametrize(
    ("name", "requested", "effective"),
    [
        ("shared_buffers", "2GB", "16384"),
        ("wal_buffers", "8MB", "512"),
        ("random_page_cost", "1.1", "1.2"),
        ("fsync", "off", "on"),
        ("wal_compression", "lz4", "pglz"),
        ("DateStyle", "ISO, DMY", "ISO, MDY"),
        ("search_path", "a", "A"),
    ],
)
def test_an_effective_value_is_distinguished_from_the_requested_one(
    name: str, requested: str, effective: str
) -> None:
    assert not CATALOGUE[name].same(requested, effective, V18)


@given(st.integers(min_value=16, max_value=1073741823))
def test_a_number_of_blocks_and_its_size_are_the_same_value(blocks: int) -> None:
    assert CATALOGUE["shared_buffers"].same(f"{blocks * 8}kB", str(blocks), V18)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        (("shared_bufers", "1GB"), "did you mean shared_buffers"),
        (("shared_buffers", "1gb"), r"units B, kB, MB, GB, TB, case-sensitive \(got .gb.\)"),
        (("shared_buffers", "1min"), "case-sensitive"),
        (("shared_buffers", "lots"), "must be a number with a unit"),
        (("shared_buffers", "64kB"), "must be from 128 kB"),
        (("shared_buffers", "100TB"), "must be from"),
        (("checkpoint_timeout", "1s"), "must be from 30 s to 24 h"),
        (("max_connections", "3MB"), "must have no unit"),
        (("max_connections", "0"), "must be from 1"),
        (("random_page_cost", "-1"), "must be from 0"),
        (("fsync", "maybe"), "must be on or off"),
        (("wal_level", "full"), "must be one of minimal, replica, logical"),
        (("block_size", "8192"), "cannot be set"),
    ],
)
def test_an_invalid_setting_is_rejected_before_the_start(setting: tuple[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=words) as raised:
        validate(dict([setting]), CATALOGUE, V18)
    assert setting[0] in str(raised.value)


@pytest.mark.parametrize(
    ("name", "values", "asked", "library"),
    [
        ("io_method", ("sync", "worker"), "io_uring", "liburing"),
        ("wal_compression", ("pglz", "on", "off"), "lz4", "lz4"),
        ("wal_compression", ("pglz", "lz4", "on", "off"), "ZSTD", "zstd"),
        ("default_toast_compression", ("pglz",), "lz4", "lz4"),
    ],
)
def test_a_value_that_needs_a_library_names_the_missing_build_option(
    name: str, values: tuple[str, ...], asked: str, library: str
) -> None:
    known = {name: define(name, "enum", values=values)}
    with pytest.raises(UsageError, match=rf"lacks {library}.*servers build 18\.\d.*--with-{library}"):
        validate({name: asked}, known, V18)


def test_jit_needs_the_library_of_the_build(tmp_path: Path) -> None:
    known = Catalogue("", {"PKGLIBDIR": str(tmp_path)}, CATALOGUE, {"jit": "on", "jit_provider": "llvmjit"})
    assert lacks_jit({"jit": "on"}, known)
    assert not lacks_jit({}, known) and not lacks_jit({"jit": "off"}, known)
    assert not lacks_jit({"jit": "on"}, replace(known, compiled={}))  # of a server whose files are unknown
    (tmp_path / "llvmjit.so").touch()
    assert not lacks_jit({"jit": "on"}, known)


def test_fractions_are_rejected_if_the_version_rejects_them() -> None:
    validate({"shared_buffers": "1.5GB"}, CATALOGUE, V18)
    with pytest.raises(UsageError, match="integer before PostgreSQL 12"):
        validate({"shared_buffers": "1.5GB"}, CATALOGUE, V11)


def test_a_size_between_two_blocks_is_cut_off_by_old_servers_and_rounded_by_new_ones() -> None:
    definition = CATALOGUE["wal_buffers"]
    assert definition.parse("3932kB", V11) == 491
    assert definition.parse("3932kB", V18) == 492
    assert definition.parse("3931kB", V18) == 491


def test_names_are_case_insensitive_and_extensions_are_checked_later() -> None:
    validate({"Shared_Buffers": "1GB", "pg_stat_statements.max": "1"}, CATALOGUE, V18)


@pytest.mark.parametrize("text", ["t", "TRUE", "y", "on", "1", "of", "n", "0"])
def test_booleans_may_be_shortened(text: str) -> None:
    assert parse_bool(text) is (text not in ("of", "n", "0"))


@pytest.mark.parametrize("text", ["", "o", "2", "truely", "onn"])
def test_ambiguous_booleans_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="on or off"):
        parse_bool(text)


@pytest.mark.parametrize("name", ["port", "PORT", "listen_addresses", "data_directory", "log_directory"])
def test_settings_controlled_by_pgdyno_are_rejected(name: str) -> None:
    with pytest.raises(UsageError, match="cannot be set:"):
        refuse_reserved({name: "x"})


def test_values_are_quoted_in_the_configuration_file_and_cannot_break_out_of_it() -> None:
    text = config_text({"search_path": "it's \\ x", "work_mem": "4MB"})
    assert "search_path = 'it''s \\\\ x'" in text
    with pytest.raises(UsageError, match="line break"):
        config_text({"work_mem": "4MB'\nfsync = 'off"})


GIB = 2**30


def fit(
    memory_bytes: int, cores: int, servers_at_once: int = 1, version: Version = V18, **kinds: str
) -> ProfileInput:
    machine = MachineResources(memory_bytes, cores, kinds.get("disk", "ssd"))  # type: ignore[arg-type]
    return ProfileInput(machine, version, CATALOGUE_OF_STARTER, servers_at_once)


STARTER_NAMES = (
    *("max_connections", "shared_buffers", "effective_cache_size", "maintenance_work_mem"),
    *("checkpoint_completion_target", "wal_buffers", "default_statistics_target", "random_page_cost"),
    *("effective_io_concurrency", "work_mem", "huge_pages", "min_wal_size", "max_wal_size"),
    "wal_compression",
    *("jit", "max_worker_processes", "max_parallel_workers", "max_parallel_workers_per_gather"),
)
CATALOGUE_OF_STARTER = {name: define(name, "string") for name in STARTER_NAMES} | {
    "wal_compression": define("wal_compression", "enum", values=("pglz", "lz4", "on", "off"))
}


def test_starter_equals_pgtune_for_the_machine_of_the_published_experiment() -> None:
    """16 GB, 4 CPUs, 100 connections, SSD, as configured by PGTune (November 2026)."""
    settings = dict(request(["starter"], {}, fit(16 * GIB, 4, version=Version(15, 0))).settings)
    assert settings == {
        "max_connections": "100",
        "shared_buffers": "4GB",
        "effective_cache_size": "12GB",
        "maintenance_work_mem": "1GB",
        "checkpoint_completion_target": "0.9",
        "wal_buffers": "16MB",
        "default_statistics_target": "100",
        "random_page_cost": "1.1",
        "effective_io_concurrency": "200",
        "work_mem": "40329kB",  # (16 GB - 4 GB) / ((100 + 4) · 3)
        "huge_pages": "try",
        "min_wal_size": "2GB",
        "max_wal_size": "8GB",
        "wal_compression": "lz4",
        "jit": "off",
        "max_worker_processes": "4",
        "max_parallel_workers": "4",
        "max_parallel_workers_per_gather": "2",
        "max_parallel_maintenance_workers": "2",
    }


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (fit(16 * GIB, 2, servers_at_once=2), {"shared_buffers": "2GB", "effective_cache_size": "6GB"}),
        (
            fit(GIB, 1),
            {"shared_buffers": "256MB", "wal_buffers": "7864kB", "huge_pages": "off", "work_mem": "4MB"},
        ),
        (fit(512 * GIB, 64), {"maintenance_work_mem": "8GB", "max_parallel_workers_per_gather": "4"}),
        (fit(GIB, 2, disk="rotational"), {"random_page_cost": "4", "effective_io_concurrency": "2"}),
        (fit(GIB, 2, disk="nvme"), {"random_page_cost": "1.1", "effective_io_concurrency": "1000"}),
    ],
)
def test_starter_follows_memory_cores_disk_and_the_servers_that_share_them(
    given: ProfileInput, expected: dict[str, str]
) -> None:
    settings = request(["starter"], {}, given).settings
    assert {name: settings[name] for name in expected} == expected


def test_a_free_setting_wins_over_the_profile_and_is_never_optional() -> None:
    asked = request(["starter"], {"Shared_Buffers": "1GB"}, fit(16 * GIB, 4))
    assert asked.settings["shared_buffers"] == "1GB"
    asked = request(["starter"], {}, fit(16 * GIB, 4))
    assert asked.optional == {"max_parallel_maintenance_workers"}
    with pytest.raises(UsageError, match="max_parallel_maintenance_workers"):
        request(["starter"], {"max_parallel_maintenance_workers": "3"}, fit(16 * GIB, 4))


def test_default_changes_nothing_and_an_unknown_profile_names_the_nearest() -> None:
    assert request(["default"], {}, fit(GIB, 1)).settings == {}
    with pytest.raises(UsageError, match="did you mean starter"):
        request(["startr"], {}, fit(GIB, 1))
    with pytest.raises(UsageError, match="available: default, starter"):
        request(["xyz"], {}, fit(GIB, 1))


def test_starter_compresses_no_wal_where_only_the_costly_way_is_built_in() -> None:
    without = CATALOGUE_OF_STARTER | {
        "wal_compression": define("wal_compression", "enum", values=("pglz", "on"))
    }
    machine = MachineResources(16 * GIB, 4, "ssd")
    assert "wal_compression" not in request(["starter"], {}, ProfileInput(machine, V18, without, 1)).settings


HOSTILE = st.builds(
    lambda number, unit: f"{number}{unit}",
    st.sampled_from(
        ["inf", "-inf", "nan", "1e309", "-1e309", "1e30", "-1e30", "1e300", "", "-", "0.5", "1e-320", "0x"]
    )
    | st.sampled_from(["0x" + "f" * 500, "0" + "7" * 500, "9" * 5000, "-" + "9" * 5000])
    | st.floats().map(repr)
    | st.integers().map(str),
    st.sampled_from(["", "B", "kB", "TB", "us", "min", "d", " GB", "%", "e"]),
)
NUMBERS = sorted(name for name, one in CATALOGUE.items() if one.vartype in ("integer", "real"))


@given(name=st.sampled_from(NUMBERS), text=HOSTILE, version=st.sampled_from([V18, V11]))
def test_every_text_is_a_number_in_range_or_rejected_with_a_reason(
    name: str, text: str, version: Version
) -> None:
    one = CATALOGUE[name]
    try:
        number = one.parse(text, version)
    except ValueError as error:
        assert str(error)
    else:
        assert float(one.min_val or 0) <= float(number) <= float(one.max_val or 0)


@pytest.mark.parametrize(
    "text", ["1e309", "-1e309", "1e309GB", "1e300TB", "0xFFFFFFFFFF", "-0777777777777777"]
)
@pytest.mark.parametrize("version", [V18, V11], ids=str)
def test_a_value_out_of_range_is_an_error_with_the_range(text: str, version: Version) -> None:
    with pytest.raises(UsageError, match=r"work_mem must be from 64 kB to 2.00 TB"):
        validate({"work_mem": text}, CATALOGUE, version)


def test_the_options_of_a_meson_build_are_unknown_and_not_none() -> None:
    texts = {"A": "'--with-lz4' '--with-openssl'", "B": "", "C": ""}
    known = {name: Catalogue("", {"CONFIGURE": text}, {}, {}) for name, text in texts.items()}
    (told,) = compiled_differences(known)
    assert "A has lz4; B has unknown options" in told
    assert compiled_differences({name: known[name] for name in ("B", "C")}) == []


def test_automatic_analyzes_are_logged_by_every_version() -> None:
    assert "log_autoanalyze_min_duration" not in base_settings(18)  # logged as automatic vacuums are
    assert base_settings(19)["log_autoanalyze_min_duration"] == "0"
