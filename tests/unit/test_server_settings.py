"""Settings: meaning of values, rejected values, profiles. The catalog is a small handmade one."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from example_studies import CORE_STUDY_FILE, read_study
from pgdyno.errors import UsageError
from pgdyno.server.builds import Version
from pgdyno.server.safety import safety
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
from pgdyno.server.settings_catalogue import Catalogue, compiled_differences, lacks_jit
from pgdyno.study.arm_spec import parse_arm, parse_arms, read_settings_file
from pgdyno.study.cases import cases_of
from pgdyno.study.schedule import likely_timeout_s
from pgdyno.study.study_file_reader import examine_text, text_with_files

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


SAME = [
    ("shared_buffers", "2GB", "262144"),
    ("shared_buffers", "262144", "262144"),
    ("shared_buffers", "1.5GB", "196608"),
    ("wal_buffers", "-1", "512"),
    ("wal_buffers", "4MB", "512"),
    ("checkpoint_timeout", "15min", "900"),
    ("unix_socket_permissions", "0700", "0700"),
    ("max_connections", "0x64", "100"),
    ("random_page_cost", "1.123456789", "1.12346"),
    ("vacuum_cost_delay", "500us", "0.5"),
    ("fsync", "FALSE", "off"),
    ("fsync", "1", "on"),
    ("synchronous_commit", "yes", "on"),
    ("wal_compression", "on", "pglz"),
    ("wal_level", "hot_standby", "replica"),
    ("DateStyle", "iso,mdy", "ISO, MDY"),
    ("DateStyle", "dmy", "ISO, DMY"),
    ("TimeZone", "europe/berlin", "Europe/Berlin"),
]
DIFFERENT = [
    ("shared_buffers", "2GB", "16384"),
    ("wal_buffers", "8MB", "512"),
    ("random_page_cost", "1.1", "1.2"),
    ("fsync", "off", "on"),
    ("wal_compression", "lz4", "pglz"),
    ("DateStyle", "ISO, DMY", "ISO, MDY"),
    ("search_path", "a", "A"),
]


@pytest.mark.parametrize(("name", "requested", "effective"), SAME + DIFFERENT)
def test_a_value_in_effect_is_recognised_however_it_was_spelled(
    name: str, requested: str, effective: str
) -> None:
    is_same = (name, requested, effective) in SAME
    assert CATALOGUE[name].same(requested, effective, V18) is is_same


@given(st.integers(min_value=16, max_value=1073741823))
def test_a_number_of_blocks_and_its_size_are_the_same_value(blocks: int) -> None:
    assert CATALOGUE["shared_buffers"].same(f"{blocks * 8}kB", str(blocks), V18)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        (("shared_bufers", "1GB"), "did you mean shared_buffers"),
        (("shared_buffers", "1gb"), r"units B, kB, MB, GB, TB, case-sensitive \(got .gb.\)"),
        (("shared_buffers", "lots"), "must be a number with a unit"),
        (("shared_buffers", "64kB"), "must be from 128 kB"),
        (("checkpoint_timeout", "1s"), "must be from 30 s to 24 h"),
        (("max_connections", "3MB"), "must have no unit"),
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
    validate({"Shared_Buffers": "1.5GB", "pg_stat_statements.max": "1"}, CATALOGUE, V18)
    with pytest.raises(UsageError, match="integer before PostgreSQL 12"):
        validate({"shared_buffers": "1.5GB"}, CATALOGUE, V11)


def test_a_size_between_two_blocks_is_cut_off_by_old_servers_and_rounded_by_new_ones() -> None:
    definition = CATALOGUE["wal_buffers"]
    assert definition.parse("3932kB", V11) == 491
    assert definition.parse("3932kB", V18) == 492
    assert definition.parse("3931kB", V18) == 491


@pytest.mark.parametrize("text", ["t", "TRUE", "y", "on", "1", "of", "n", "0", "", "o", "2", "truely"])
def test_booleans_may_be_shortened_and_ambiguous_ones_are_rejected(text: str) -> None:
    if text in ("", "o", "2", "truely"):
        with pytest.raises(ValueError, match="on or off"):
            parse_bool(text)
    else:
        assert parse_bool(text) is (text not in ("of", "n", "0"))


@pytest.mark.parametrize("name", ["PORT", "listen_addresses", "data_directory", "log_directory"])
def test_settings_controlled_by_pgdyno_are_rejected(name: str) -> None:
    with pytest.raises(UsageError, match="cannot be set:"):
        refuse_reserved({name: "x"})


@pytest.mark.parametrize(
    ("locale", "is_english"),
    [
        *((name, True) for name in ("C", "POSIX", "en_US.UTF-8", "C.UTF-8", "")),
        *((name, False) for name in ("de_DE.UTF-8", "fr", "csb_PL")),
    ],
)
def test_the_messages_of_a_server_are_english(locale: str, is_english: bool) -> None:
    with nullcontext() if is_english else pytest.raises(UsageError, match="the server log in English"):
        refuse_reserved({"lc_messages": locale, "logging_collector": "on", "lc_time": "de_DE"})


def test_a_password_in_a_setting_is_refused_because_a_resume_would_lack_it() -> None:
    refuse_reserved({"primary_conninfo": "host=standby user=ann", "password_encryption": "md5"})
    with pytest.raises(UsageError, match="primary_conninfo must not contain a password") as refused:
        refuse_reserved({"primary_conninfo": "host=standby password=hunter2"})
    assert "hunter2" not in str(refused.value)


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


def test_the_options_of_a_meson_build_are_unknown_and_not_none() -> None:
    texts = {"A": "'--with-lz4' '--with-openssl'", "B": "", "C": ""}
    known = {name: Catalogue("", {"CONFIGURE": text}, {}, {}) for name, text in texts.items()}
    (told,) = compiled_differences(known)
    assert "A has lz4; B has unknown options" in told
    assert compiled_differences({name: known[name] for name in ("B", "C")}) == []


def test_automatic_analyzes_are_logged_by_every_version() -> None:
    assert "log_autoanalyze_min_duration" not in base_settings(18)  # logged as automatic vacuums are
    assert base_settings(19)["log_autoanalyze_min_duration"] == "0"


SAFE = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "wal_level": "replica",
    "max_wal_senders": "10",
    "archive_mode": "on",
    "archive_command": "cp %p /archive/%f",
    "autovacuum": "on",
    "track_counts": "on",
    "data_checksums": "on",
    "wal_writer_delay": "200ms",
    "checkpoint_timeout": "5min",
    "max_wal_size": "1GB",
}


def test_a_safe_server_loses_no_guarantee() -> None:
    assert safety(SAFE).given_up == {}
    assert safety(SAFE).checkpoint_distance == "every 5min, or earlier to keep WAL below 1 GB"


@pytest.mark.parametrize(
    ("changed", "given_up"),
    [
        ({"synchronous_commit": "off"}, {"process-crash": "partly", "power-loss": "partly"}),
        ({"synchronous_commit": "local"}, {}),
        ({"fsync": "off"}, {"power-loss": "no", "torn-pages": "no"}),
        ({"full_page_writes": "off"}, {"torn-pages": "no"}),
        (
            {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"},
            {"process-crash": "partly", "power-loss": "no", "torn-pages": "no"},
        ),
        ({"wal_level": "minimal", "max_wal_senders": "0"}, {"replication": "no", "point-in-time": "no"}),
        ({"wal_level": "logical"}, {}),
        ({"max_wal_senders": "0"}, {"replication": "no"}),
        ({"archive_mode": "off", "archive_command": "(disabled)"}, {"point-in-time": "partly"}),
        ({"archive_command": ""}, {"point-in-time": "no"}),
        ({"archive_command": "/bin/true"}, {"point-in-time": "no"}),
        ({"archive_command": "", "archive_library": "basic_archive"}, {}),
        ({"autovacuum": "off"}, {"autovacuum": "no"}),
        ({"track_counts": "off"}, {"autovacuum": "no"}),
        ({"data_checksums": "off"}, {"checksums": "no"}),
    ],
)
def test_the_guarantees_lost_by_a_setting(changed: dict[str, str], given_up: dict[str, str]) -> None:
    found = safety(SAFE | changed)
    assert {key: badge.kept for key, badge in found.given_up.items()} == given_up
    assert all(badge.text for badge in found.given_up.values())


def test_the_commits_that_may_be_lost_are_reported_as_time() -> None:
    found = safety(SAFE | {"synchronous_commit": "off", "wal_writer_delay": "1s"})
    assert "up to 3000 ms" in found.given_up["process-crash"].text


def test_settings_that_cannot_be_read_are_unknown_and_not_safe() -> None:
    found = safety({})
    assert {badge.kept for badge in found.badges.values()} == {"unknown"}
    assert found.checkpoint_distance == "unknown"


def written(directory: Path, text: str | bytes, name: str = "tuned.conf") -> Path:
    path = directory / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize(
    ("line", "settings"),
    [
        ("", {}),
        ("  # shared_buffers = 1GB", {}),
        ("Work_Mem=4MB", {"work_mem": "4MB"}),
        ("work_mem = '4MB'#\t4MB", {"work_mem": "4MB"}),
        ("fsync off\r", {"fsync": "off"}),
        ("random_page_cost 1.1\nwork_mem = 1GB   # 25%", {"random_page_cost": "1.1", "work_mem": "1GB"}),
        ("port'5433'", {"port": "5433"}),
        ("search_path = '\"$user\", public'", {"search_path": '"$user", public'}),
        ("cluster_name = 'it''s \\'x\\' \\\\ \\101'", {"cluster_name": "it's 'x' \\ A"}),
        ("cluster_name = 'a # b'", {"cluster_name": "a # b"}),
        ("timezone = Europe/Berlin", {"timezone": "Europe/Berlin"}),
        ("vacuum_cost_delay = -1.5e-3", {"vacuum_cost_delay": "-1.5e-3"}),
        ("unix_socket_permissions = 0x1F", {"unix_socket_permissions": "0x1F"}),
        ("pg_stat_statements.track = all", {"pg_stat_statements.track": "all"}),
        ("work_mem = 1MB\nwork_mem = 2MB", {"work_mem": "2MB"}),
        ("# caf\xe9 (Latin-1)\nwork_mem = 1MB", {"work_mem": "1MB"}),
        ("\ufeffwork_mem = 1MB", {"work_mem": "1MB"}),
    ],
)
def test_a_line_of_postgresql_conf_is_a_setting(tmp_path: Path, line: str, settings: dict[str, str]) -> None:
    data = line.encode("latin-1") if "Latin-1" in line else line.encode()
    assert read_settings_file(written(tmp_path, data)) == settings


@pytest.mark.parametrize(
    "line",
    [
        "shared_preload_libraries = pg_stat_statements, auto_explain",
        "work_mem = 1.5GB",
        "work_mem = 4 MB",
        "work_mem",
        "work_mem =",
        "cluster_name = 'a",
        "[mysqld]",
        "= 4MB",
        "a.b.c = 1",
    ],
)
def test_what_the_server_refuses_is_an_error_with_its_key(tmp_path: Path, line: str) -> None:
    with pytest.raises(UsageError, match=r"tuned\.conf:2: is not a setting.*quote a value"):
        read_settings_file(written(tmp_path, f"fsync = on\n{line}\n"))


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("ALTER SYSTEM SET work_mem = '20971kB';", {"work_mem": "20971kB"}),
        ("-- DB Version: 16\n# x\nALTER SYSTEM SET\n work_mem = '1MB';", {"work_mem": "1MB"}),
        ("alter system set Work_Mem TO '1MB'", {"work_mem": "1MB"}),
        ("ALTER SYSTEM SET vacuum_cost_delay = -1 ;", {"vacuum_cost_delay": "-1"}),
        ("ALTER SYSTEM SET jit = OFF;", {"jit": "off"}),
        ("ALTER SYSTEM SET jit TO off; ALTER SYSTEM RESET jit;", {}),
        ("ALTER SYSTEM SET jit TO off; ALTER SYSTEM SET jit TO DEFAULT;", {}),
        ("ALTER SYSTEM SET jit TO off; ALTER SYSTEM RESET ALL;", {}),
        ("ALTER SYSTEM SET search_path = a, 'b c';", {"search_path": "a, b c"}),
        ("ALTER SYSTEM SET cluster_name = 'it''s; x' /* a;\nb */;", {"cluster_name": "it's; x"}),
        ('ALTER SYSTEM SET "auto_explain"."log_analyze" = on;', {"auto_explain.log_analyze": "on"}),
        ("ALTER SYSTEM SET jit = on;\nSELECT pg_reload_conf();", {"jit": "on"}),
    ],
)
def test_alter_system_leaves_what_postgresql_auto_conf_would_have(
    tmp_path: Path, text: str, settings: dict[str, str]
) -> None:
    assert read_settings_file(written(tmp_path, text, "tuned.sql")) == settings


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER SYSTEM SET work_mem = 4MB",
        "ALTER SYSTEM SET work_mem",
        "ALTER SYSTEM SET work_mem = a,",
        "ALTER SYSTEM SET = 1",
        "ALTER SYSTEM RESET jit off",
        "ALTER DATABASE x SET jit = off",
        "DROP TABLE x",
        "work_mem = 4MB",
        "ALTER SYSTEM SET jit = 'on",
        "\\c x",
    ],
)
def test_other_statements_are_errors_with_their_line(tmp_path: Path, statement: str) -> None:
    text = f"ALTER SYSTEM SET jit = on;\n\n{statement};"
    with pytest.raises(UsageError, match=r"tuned\.sql:3: is (not SQL|neither ALTER SYSTEM)"):
        read_settings_file(written(tmp_path, text, "tuned.sql"))


def test_included_files_are_relative_to_the_file_that_includes_them(tmp_path: Path) -> None:
    (tmp_path / "conf.d").mkdir()
    written(tmp_path / "conf.d", "work_mem = 2MB\njit = on\ninclude 'deeper/x'\n", "20.conf")
    written(tmp_path / "conf.d", "work_mem = 1MB\n", "10.conf")
    written(tmp_path / "conf.d", "work_mem = 9MB\n", "30.conf.old")
    written(tmp_path / "conf.d", "work_mem = 9MB\n", ".40.conf")
    (tmp_path / "conf.d" / "deeper").mkdir()
    written(tmp_path / "conf.d" / "deeper", "jit = off", "x")
    path = written(tmp_path, "include_if_exists = nowhere\nInclude_Dir 'conf.d'\nfsync = on\n")
    assert read_settings_file(path) == {"work_mem": "2MB", "jit": "off", "fsync": "on"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("include 'nowhere.conf'", "tuned.conf:1: includes .*nowhere.conf, which does not exist"),
        ("include_dir 'conf.d'", "tuned.conf:1: includes the directory .*No such file"),
        ("include 'tuned.conf'", "does a file include itself"),
        ("a = 1\0", "zero byte"),
        ("a = '" + "x" * (1 << 20), "larger than 1 MiB"),
        (b"cluster_name = 'caf\xe9'", "cluster_name is not UTF-8"),
        (b"ALTER SYSTEM SET cluster_name = 'caf\xe9'", "cluster_name is not UTF-8"),
    ],
)
def test_a_file_that_cannot_be_read_is_an_error_with_a_remedy(
    tmp_path: Path, text: str | bytes, words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        read_settings_file(written(tmp_path, text))


@given(st.text(st.characters(codec="utf-8", exclude_characters="\n\r\0")))
@example("\ufffd")
def test_a_value_that_pgdyno_writes_for_a_server_is_read_back(value: str) -> None:
    with TemporaryDirectory() as directory:
        path = written(Path(directory), config_text({"cluster_name": value}))
        assert read_settings_file(path) == {"cluster_name": value}


# Arms


def test_a_name_with_a_dot_or_a_slash_is_a_file_and_its_settings_are_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = written(tmp_path, "work_mem = 4MB")
    (tmp_path / "dir").mkdir()
    written(tmp_path / "dir", "work_mem = 8MB", "tuned")
    arms = parse_arms(["18", "18,@tuned.conf", "18,@./tuned.conf", "18,@starter,@dir/tuned,jit=off"])
    assert [arm.files for arm in arms] == [
        {},
        {"tuned.conf": {"work_mem": "4MB"}},
        {"./tuned.conf": {"work_mem": "4MB"}},
        {"dir/tuned": {"work_mem": "8MB"}},
    ]
    assert arms[3].profiles == ("starter", "dir/tuned")
    assert arms[3].full_name == "18,@starter,@dir/tuned,jit=off"
    assert arms[3].known_settings == {"work_mem": "8MB", "jit": "off"}
    path.unlink()  # a stored arm needs no file
    assert type(arms[1]).model_validate_json(arms[1].model_dump_json()) == arms[1]
    assert "files" not in arms[0].model_dump()


def test_names_of_arms_have_as_much_of_a_path_as_distinguishes_it(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        written(tmp_path / name, "jit = off", "x.conf")
    written(tmp_path, "jit = off")
    arms = parse_arms(["18", *(f"18,@{tmp_path}/{name}" for name in ("a/x.conf", "b/x.conf", "tuned.conf"))])
    assert [arm.name for arm in arms] == ["18", "@…/a/x.conf", "@…/b/x.conf", "@tuned.conf"]


@pytest.mark.parametrize(
    ("arm", "words"),
    [
        ("15,tuned.conf", "write 15,@tuned.conf"),
        ("15,jit=off,../tuned.sql", "write 15,@../tuned.sql"),
        ("15,config_file=tuned.conf", "write 15,@tuned.conf"),
        ("15,config_file='tuned'", "write 15,@./tuned"),
        ("host=db dbname=x,@./tuned.conf", "running already"),
    ],
)
def test_other_spellings_of_a_file_name_the_right_one(arm: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        parse_arm(arm)


@pytest.mark.parametrize(
    ("parts", "settings"),
    [
        ("work_mem = 1GB            # 25%", {"work_mem": "1GB"}),
        (
            "shared_preload_libraries = 'pg_stat_statements, auto_explain',jit=off",
            {"shared_preload_libraries": "pg_stat_statements, auto_explain", "jit": "off"},
        ),
        ("jit=off,random_page_cost 1.1,fsync off", {"jit": "off", "random_page_cost": "1.1", "fsync": "off"}),
        ("search_path='a','b'", {"search_path": "a,b"}),
        ("search_path=a,b", {"search_path": "a,b"}),
        ('search_path="$user", public', {"search_path": '"$user", public'}),
        ("cluster_name='it''s'", {"cluster_name": "it's"}),
        ("cluster_name=it's,jit=off", {"cluster_name": "it's", "jit": "off"}),
        ("archive_command=cp a, foo bar", {"archive_command": "cp a, foo bar"}),
    ],
)
def test_values_pasted_from_a_file_mean_the_same_in_an_arm(parts: str, settings: dict[str, str]) -> None:
    assert parse_arm(f"15,{parts}").settings == settings


def test_the_window_of_checkpoints_follows_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, "checkpoint_timeout = 15min")
    assert likely_timeout_s(parse_arms(["18", f"18,@{path}"])) == 900


# What an arm takes from a file


def of_files(libraries: Path | None = None) -> ProfileInput:
    numbers = {"work_mem": CATALOGUE["work_mem"]}
    names = ("archive_mode", "archive_command", "shared_preload_libraries", "cluster_name")
    known = {name: define(name, "string") for name in names} | numbers
    return ProfileInput(MachineResources(2**34, 4, "ssd"), V18, known, library_dir=libraries)


def read(tmp_path: Path, text: str) -> dict[str, dict[str, str]]:
    return {"x.conf": read_settings_file(written(tmp_path, text))}


def test_what_pgdyno_sets_or_reaches_other_systems_is_skipped_with_the_reason(tmp_path: Path) -> None:
    names = (
        *("listen_addresses", "port", "unix_socket_directories", "log_destination", "log_line_prefix"),
        *("data_directory", "hba_file", "log_filename", "tcp_keepalives_idle"),
        *("archive_command", "restore_command", "primary_conninfo", "archive_library", "archive_mode"),
        *("archive_cleanup_command", "recovery_end_command", "ssl", "ssl_cert_file", "ssl_key_file"),
        *("synchronous_standby_names", "lc_messages", "stats_temp_directory", "client_encoding"),
        *("dynamic_library_path", "extension_control_path"),
    )
    files = read(tmp_path, "\n".join(f"{name} = 'x'" for name in names) + "\nwork_mem = 4MB")
    found = request(["x.conf"], {}, of_files(), files=files)
    assert found.settings == {"work_mem": "4MB"}
    assert found.skipped["x.conf"].keys() == set(names)
    (note,) = found.notes
    assert note.startswith("x.conf: skipped listen_addresses, port,") and "private Unix socket" in note


def test_nothing_is_skipped_that_would_have_no_effect(tmp_path: Path) -> None:
    text = "ssl = off\narchive_command = ''\narchive_mode = off\nlc_messages = 'C'\nlc_time = POSIX"
    files = read(tmp_path, f"{text}\nwork_mem = 4MB")
    assert request(["x.conf"], {}, of_files(), files=files).notes == []


def test_connection_strings_and_commands_of_a_file_are_not_stored(tmp_path: Path) -> None:
    files = read(tmp_path, "primary_conninfo = 'password=hush'\narchive_command = 'curl -u a:hush %p'")
    assert files["x.conf"].keys() == {"primary_conninfo", "archive_command"}
    assert "hush" not in str(files)


def test_an_archive_named_on_the_command_line_is_used(tmp_path: Path) -> None:
    files = read(tmp_path, "archive_mode = on\narchive_command = 'scp %p backup:'")
    found = request(["x.conf"], {"archive_command": "true"}, of_files(), files=files)
    assert found.settings == {"archive_mode": "on", "archive_command": "true"}
    assert not found.skipped


def test_libraries_that_the_server_lacks_are_skipped_with_their_settings(tmp_path: Path) -> None:
    text = "shared_preload_libraries = 'a, $libdir/b, c'\nc.max = 4\na.max = 4"
    files = read(tmp_path, text)
    for name in ("a.so", "b.so"):
        (tmp_path / name).touch()
    found = request(["x.conf"], {}, of_files(tmp_path), files=files)
    assert found.settings == {"shared_preload_libraries": "a,$libdir/b", "a.max": "4"}
    assert found.optional == {"a.max"}  # PostgreSQL accepts it without the library, too
    assert found.skipped["x.conf"].keys() == {"c of shared_preload_libraries", "c.max"}
    assert not request(["x.conf"], {}, of_files(), files=files).skipped  # of a server whose files are unknown


def test_later_parts_override_a_file_and_its_wrong_values(tmp_path: Path) -> None:
    files = read(tmp_path, "work_mem = 1kB\ncluster_name = x")
    with pytest.raises(UsageError, match=r"x\.conf: work_mem=1kB: work_mem must be from 64 kB"):
        request(["x.conf"], {}, of_files(), files=files)
    found = request(["x.conf"], {"Work_Mem": "1MB"}, of_files(), files=files)
    assert found.settings == {"cluster_name": "x", "work_mem": "1MB"}
    with pytest.raises(UsageError, match=r"x\.conf: PostgreSQL 18.4 has no setting 'work_mam'"):
        request(["x.conf"], {}, of_files(), files={"x.conf": {"work_mam": "1MB"}})


def test_an_unknown_profile_names_the_spelling_of_a_file() -> None:
    with pytest.raises(UsageError, match=r"unknown profile 'tuned'.*@\./tuned"):
        request(["tuned"], {}, of_files())


# Study files


STUDY = """title = "t"
compare = ["settings"]
server = "17"
[workload]
kind = "pgbench"
scale = 1
[drive]
clients = 1
[settings]
profiles = ["base.conf"]
[factors.settings]
plain = "jit=on"
tuned = "@./tuned.conf,jit=off"
table = {{ profiles = ["starter", "{directory}/tuned.conf"], optional = ["work_mem", "x"] }}
[run]
repeats = 2
window = "10s"
"""


def test_settings_files_of_a_study_are_relative_to_it_and_are_stored(tmp_path: Path) -> None:
    written(tmp_path, "work_mem = 4MB")
    written(tmp_path, "cluster_name = 'a \"b\"'", "base.conf")
    text = STUDY.format(directory=tmp_path)
    file, problems = examine_text(text, "s.toml", tmp_path)
    assert file is not None and problems == []
    (case,) = cases_of(file)
    base = {"base.conf": {"cluster_name": 'a "b"'}}
    assert [arm.files for arm in case.study.arms] == [
        base,
        {**base, "./tuned.conf": {"work_mem": "4MB"}},
        {**base, f"{tmp_path}/tuned.conf": {"work_mem": "4MB"}},
    ]
    assert case.study.arms[2].optional == ("work_mem",)
    complete = text_with_files(text, file)
    again, problems = examine_text(complete, "s.toml", tmp_path / "elsewhere")
    assert again is not None and problems == []
    assert cases_of(again) == cases_of(file)
    assert text_with_files(complete, again) == complete


def test_a_missing_settings_file_of_a_study_is_an_error_with_its_key(tmp_path: Path) -> None:
    written(tmp_path, "work_mem = 4MB")
    _, problems = examine_text(STUDY.format(directory=tmp_path), "s.toml", tmp_path)
    (problem,) = problems
    assert problem.startswith("s.toml: settings: cannot read the settings file")


def test_a_study_without_settings_files_is_stored_as_it_is() -> None:
    assert text_with_files(CORE_STUDY_FILE, read_study(CORE_STUDY_FILE, "s.toml")) == CORE_STUDY_FILE
