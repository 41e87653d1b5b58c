"""Settings files of arms: postgresql.conf's syntax, ALTER SYSTEM, what an arm does not take from a file."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgdyno.errors import UsageError
from pgdyno.server.builds import Version
from pgdyno.server.settings import Definition, MachineResources, ProfileInput, config_text, request
from pgdyno.study.arm_spec import parse_arm, parse_arms, read_settings_file
from pgdyno.study.cases import cases_of
from pgdyno.study.schedule import likely_timeout_s
from pgdyno.study.study_file_reader import examine_text, text_with_files

PGTUNE = """# DB Version: 16
max_connections = 100
shared_buffers = 1GB            # 25%
work_mem = 20971kB
random_page_cost 1.1
shared_preload_libraries = 'pg_stat_statements, auto_explain'
log_min_duration_statement = 500
"""
TUNED = {
    "max_connections": "100",
    "shared_buffers": "1GB",
    "work_mem": "20971kB",
    "random_page_cost": "1.1",
    "shared_preload_libraries": "pg_stat_statements, auto_explain",
    "log_min_duration_statement": "500",
}


def written(directory: Path, text: str | bytes, name: str = "tuned.conf") -> Path:
    path = directory / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_file_printed_by_pgtune_is_read_as_the_server_reads_it(tmp_path: Path) -> None:
    assert read_settings_file(written(tmp_path, PGTUNE)) == TUNED


@pytest.mark.parametrize(
    ("line", "settings"),
    [
        ("", {}),
        ("  # shared_buffers = 1GB", {}),
        ("Work_Mem=4MB", {"work_mem": "4MB"}),
        ("work_mem = '4MB'#\t4MB", {"work_mem": "4MB"}),
        ("fsync off\r", {"fsync": "off"}),
        ("port'5433'", {"port": "5433"}),
        ("search_path = '\"$user\", public'", {"search_path": '"$user", public'}),
        ("cluster_name = 'it''s \\'x\\' \\\\ \\101'", {"cluster_name": "it's 'x' \\ A"}),
        ("cluster_name = 'a # b'", {"cluster_name": "a # b"}),
        ("cluster_name = ''", {"cluster_name": ""}),
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
        ("ALTER SYSTEM SET random_page_cost = 1.1;", {"random_page_cost": "1.1"}),
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
    ],
)
def test_a_file_that_cannot_be_read_is_an_error_with_a_remedy(
    tmp_path: Path, text: str | bytes, words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        read_settings_file(written(tmp_path, text))


@given(st.text(st.characters(codec="utf-8", exclude_characters="\n\r\0")))
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
        ("15,jit=off,@./tuned.conf", "profiles come first"),
        ("host=db dbname=x,@./tuned.conf", "running already"),
    ],
)
def test_other_spellings_of_a_file_name_the_right_one(arm: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        parse_arm(arm)


@pytest.mark.parametrize(
    ("parts", "settings"),
    [
        ("work_mem='20971kB'", {"work_mem": "20971kB"}),
        ("work_mem = 1GB            # 25%", {"work_mem": "1GB"}),
        (
            "shared_preload_libraries = 'pg_stat_statements, auto_explain',jit=off",
            {"shared_preload_libraries": "pg_stat_statements, auto_explain", "jit": "off"},
        ),
        ("random_page_cost 1.1", {"random_page_cost": "1.1"}),
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


def define(name: str, vartype: str = "string", unit: str | None = None) -> Definition:
    return Definition(name, vartype, unit, "64", "2147483647", (), "user", None, "group", "", None)


def fit(libraries: Path | None = None) -> ProfileInput:
    numbers = {"work_mem": define("work_mem", "integer", "kB")}
    names = ("archive_mode", "archive_command", "shared_preload_libraries", "cluster_name")
    known = {name: define(name) for name in names} | numbers
    return ProfileInput(MachineResources(2**34, 4, "ssd"), Version(18, 1), known, library_dir=libraries)


def read(tmp_path: Path, text: str) -> dict[str, dict[str, str]]:
    return {"x.conf": read_settings_file(written(tmp_path, text))}


def test_what_pgdyno_sets_or_reaches_other_systems_is_skipped_with_the_reason(tmp_path: Path) -> None:
    names = (
        *("listen_addresses", "port", "unix_socket_directories", "log_destination", "log_line_prefix"),
        *("data_directory", "hba_file", "logging_collector", "tcp_keepalives_idle"),
        *("archive_command", "restore_command", "primary_conninfo", "archive_library", "archive_mode"),
        *("archive_cleanup_command", "recovery_end_command", "ssl", "ssl_cert_file", "ssl_key_file"),
        *("synchronous_standby_names", "lc_messages", "stats_temp_directory", "client_encoding"),
    )
    files = read(tmp_path, "\n".join(f"{name} = 'x'" for name in names) + "\nwork_mem = 4MB")
    found = request(["x.conf"], {}, fit(), files=files)
    assert found.settings == {"work_mem": "4MB"}
    assert found.skipped["x.conf"].keys() == set(names)
    (note,) = found.notes
    assert note.startswith("x.conf: skipped listen_addresses, port,") and "private Unix socket" in note


def test_nothing_is_skipped_that_would_have_no_effect(tmp_path: Path) -> None:
    files = read(tmp_path, "ssl = off\narchive_command = ''\narchive_mode = off\nwork_mem = 4MB")
    assert request(["x.conf"], {}, fit(), files=files).notes == []


def test_connection_strings_and_commands_of_a_file_are_not_stored(tmp_path: Path) -> None:
    files = read(tmp_path, "primary_conninfo = 'password=hush'\narchive_command = 'curl -u a:hush %p'")
    assert files["x.conf"].keys() == {"primary_conninfo", "archive_command"}
    assert "hush" not in str(files)


def test_an_archive_named_on_the_command_line_is_used(tmp_path: Path) -> None:
    files = read(tmp_path, "archive_mode = on\narchive_command = 'scp %p backup:'")
    found = request(["x.conf"], {"archive_command": "true"}, fit(), files=files)
    assert found.settings == {"archive_mode": "on", "archive_command": "true"}
    assert not found.skipped


def test_libraries_that_the_server_lacks_are_skipped_with_their_settings(tmp_path: Path) -> None:
    text = "shared_preload_libraries = 'a, $libdir/b, c'\nc.max = 4\na.max = 4"
    files = read(tmp_path, text)
    for name in ("a.so", "b.so"):
        (tmp_path / name).touch()
    found = request(["x.conf"], {}, fit(tmp_path), files=files)
    assert found.settings == {"shared_preload_libraries": "a,$libdir/b", "a.max": "4"}
    assert found.optional == {"a.max"}  # PostgreSQL accepts it without the library, too
    assert found.skipped["x.conf"].keys() == {"c of shared_preload_libraries", "c.max"}
    assert not request(["x.conf"], {}, fit(), files=files).skipped  # of a server whose files are unknown


def test_later_parts_override_a_file_and_its_wrong_values(tmp_path: Path) -> None:
    files = read(tmp_path, "work_mem = 1kB\ncluster_name = x")
    with pytest.raises(UsageError, match=r"x\.conf: work_mem=1kB: work_mem must be from 64 kB"):
        request(["x.conf"], {}, fit(), files=files)
    found = request(["x.conf"], {"Work_Mem": "1MB"}, fit(), files=files)
    assert found.settings == {"cluster_name": "x", "work_mem": "1MB"}
    with pytest.raises(UsageError, match=r"x\.conf: PostgreSQL 18.1 has no setting 'work_mam'"):
        request(["x.conf"], {}, fit(), files={"x.conf": {"work_mam": "1MB"}})


def test_an_unknown_profile_names_the_spelling_of_a_file() -> None:
    with pytest.raises(UsageError, match=r"unknown profile 'tuned'.*@\./tuned"):
        request(["tuned"], {}, fit())


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
    lines = [line for line in STUDY.splitlines() if ".conf" not in line]
    text = "\n".join([*lines, "[factors]", 'server = ["17", "18"]'])
    text = (
        text.replace('server = "17"\n', "").replace("[factors.settings]", "").replace('plain = "jit=on"', "")
    )
    file, problems = examine_text(text.replace('["settings"]', '["server"]'), "s.toml")
    assert file is not None and problems == []
    assert text_with_files(text, file) == text
