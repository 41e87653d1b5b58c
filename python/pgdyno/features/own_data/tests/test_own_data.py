"""The user's data without a server: sources, names, invariants and parameters."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from pydantic import ValidationError

from pgdyno.errors import UsageError
from pgdyno.features.own_data.loading import require_importable
from pgdyno.features.own_data.plan import Invariant, OwnData, OwnDataParameters
from pgdyno.features.own_data.source import (
    NamedDataStore,
    Selection,
    examined,
    read_only_conninfo,
    same_major_first,
    unpacked_lines,
)
from pgdyno.server.builds import Build, Version
from pgdyno.server.cache_directory import Cache, items, prune
from pgdyno.server.connections import Dsn
from pgdyno.server.directories import locked, server_account
from pgdyno.server.snapshots import ClusterState
from pgdyno.study.workload_parameters import workload_from
from pgdyno.workloads.pgbench.parameters import PgbenchParameters, Script

OWN = Script(name="own.sql", text="SELECT 1")


@pytest.mark.parametrize(
    ("text", "queries"),
    [
        ("SELECT 1;", ["SELECT 1"]),
        ("-- a; b\nSELECT ';' ; /* ; */ SELECT \"a;b\"", ["SELECT ';'", 'SELECT "a;b"']),
        ("SELECT $x$;$x$, E'\\';' -- ;\n;", ["SELECT $x$;$x$, E'\\';' -- ;"]),
    ],
)
def test_semicolons_separate_queries_except_in_strings_names_and_comments(
    text: str, queries: list[str]
) -> None:
    assert list(Invariant(name="n", text=text).queries()) == queries
    with pytest.raises(ValidationError, match="contains no query"):
        Invariant(name="n", text="-- nothing\n;")


def test_own_data_have_the_scale_1_and_are_stored_only_if_given() -> None:
    plain, checks = {"kind": "pgbench", "scale": 1}, [{"name": "c", "text": "SELECT 1"}]
    assert type(workload_from(plain)) is PgbenchParameters
    assert type(workload_from({**plain, "checks": checks})) is OwnDataParameters
    own = OwnDataParameters.model_validate({"data": "shop.dump", "scripts": (OWN,)})
    assert own.to_drive()["scale"] == 1
    assert OwnDataParameters.model_validate(own.model_dump()) == own
    assert own.name == "pgbench own.sql, data shop.dump"
    assert not {"data", "checks"} & OwnDataParameters(scale=1).model_dump().keys()
    masked = {"source": "shop", "form": "plain", "masked": ["a.b.email=hash"]}  # by an older version
    assert OwnData.model_validate(masked) == OwnData(source="shop", form="plain")


def test_a_database_is_read_by_the_programs_of_its_own_version_if_they_are_there() -> None:
    builds = [Build("system", Version(major, 1), Path(f"/{major}"), "", "") for major in (18, 17, 15)]
    assert [build.version.major for build in same_major_first(builds, 15)] == [15, 18, 17]
    assert same_major_first(builds, 16) == builds


def test_a_changed_file_has_another_digest_and_a_moved_one_the_same(tmp_path: Path) -> None:
    file, moved = tmp_path / "shop.sql", tmp_path / "m.sql"
    file.write_text("SELECT 1;")
    before = examined(OwnData(source=str(file)))
    assert (before.form, before.name, before.size_bytes) == ("plain", "shop", 9)
    moved.write_text("SELECT 1;")
    assert examined(OwnData(source=str(moved))).digest == before.digest
    file.write_text("SELECT 2;")
    assert examined(OwnData(source=str(file))).digest != before.digest
    assert before.shape() != examined(OwnData(source=str(file), analyze=False)).shape()


def test_files_behind_links_and_those_that_scripts_name_belong_to_the_content(tmp_path: Path) -> None:
    source, far, aside = (tmp_path / name for name in ("source", "far", "aside"))
    for folder in (source, far, far / "below", aside, aside / "below"):
        folder.mkdir()
    names = ("i", "ir", "copy", "server", "nested", "object")
    named = {name: tmp_path / f"{name} of 'mine'" for name in names}
    quoted = {name: f"'{str(path).replace(chr(39), chr(39) * 2)}'" for name, path in named.items()}
    (source / "load.sql").write_text(
        f"\\i {quoted['i']}\n  \\ir {quoted['ir']}\n\\copy t from {quoted['copy']} csv\n"
        f"COPY t (a,\nb) FROM {quoted['server']};\nSELECT lo_import( {quoted['object']});\n"
        f"\\cd '{aside}'\n\\cd below\n\\copy t (a, b) from rows.csv csv\n"
    )
    for path in named.values():
        path.write_text("1")
    named["i"].write_text(f"\\i {quoted['nested']}\n\\ir beside\n\\ir ../{tmp_path.name}/beside\n")
    relative = [tmp_path / "beside", aside / "below" / "rows.csv", far / "below" / "rows.csv"]
    for path in relative:
        path.write_text(f"\\ir ../{path.parent.name}/{path.name}\n")  # itself
    (far / "up").symlink_to(far)
    (source / "link").symlink_to(far)
    digests = {examined(OwnData(source=str(source))).digest}
    changed = [path for name, path in named.items() if name != "i"] + relative
    for path in changed:
        path.write_text("2")
        digests.add(examined(OwnData(source=str(source))).digest)
    assert len(digests) == 1 + len(changed)


PACKERS: Mapping[str, Callable[[Path, bytes], None]] = {
    "gz": lambda path, text: path.write_bytes(gzip.compress(text)) and None,
    "bz2": lambda path, text: path.write_bytes(bz2.compress(text)) and None,
    "xz": lambda path, text: path.write_bytes(lzma.compress(text)) and None,
    "zip": lambda path, text: zipfile.ZipFile(path, "w").writestr("a.sql", text),
}


@pytest.mark.parametrize("kind", PACKERS)
def test_a_compressed_sql_file_is_read_with_the_files_that_it_names(kind: str, tmp_path: Path) -> None:
    rows, path = tmp_path / "rows.csv", tmp_path / "dump"
    text = f"\\copy t from {rows}\n".encode() * 9
    PACKERS[kind](path, text)
    digests = set()
    for content in ("1", "2"):
        rows.write_text(content)
        digests.add((found := examined(OwnData(source=str(path)))).digest)
    assert (found.form, len(digests)) == ("plain", 2)
    assert b"".join(unpacked_lines(path)) == text
    PACKERS[kind](path, b"PGDMP\1")
    with pytest.raises(UsageError, match="compressed archive of pg_dump: unpack it with"):
        examined(OwnData(source=str(path)))
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(UsageError, match="cannot read"):
        examined(OwnData(source=str(path)))


def test_zstd_is_read_by_its_program_or_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, programs = tmp_path / "a.zst", tmp_path / "bin"
    path.write_bytes(b"\x28\xb5\x2f\xfd....")
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    with pytest.raises(UsageError, match="install it, or unpack it with zstd -d"):
        examined(OwnData(source=str(path)))
    (programs / "zstd").write_text("#!/bin/sh\necho 'SELECT 1;'\n")
    (programs / "zstd").chmod(0o755)
    assert examined(OwnData(source=str(path))).form == "plain"
    assert list(unpacked_lines(path)) == [b"SELECT 1;\n"]


def test_what_a_killed_reading_left_is_removed_by_the_next_command(tmp_path: Path) -> None:
    cache = Cache.at(tmp_path / "cache", server_account())
    left = [cache.data / f".{name}.part" for name in ("shop", "busy")]
    for part in left:
        part.mkdir()
        (part / "database.sql.gz").write_text("rows")
    with locked(cache.data / ".busy.lock"):
        assert [(item.name, item.in_use) for item in items(cache)] == [
            (".busy.part", True),
            (".shop.part", False),
        ]
        assert [item.name for item in prune(cache)] == [".shop.part"]
        assert [part.exists() for part in left] == [False, True]
    store = NamedDataStore(cache.data, lambda: [])
    (tmp_path / "a.sql").write_text("SELECT 1;")
    data = OwnData(source=str(tmp_path / "a.sql"))
    for command in (lambda: store.resolved(data), lambda: store.add("a", data, Selection())):
        left[1].mkdir(exist_ok=True)
        command()
        assert not left[1].exists()


NO_SOURCE: Mapping[str, Callable[[Path], object]] = {
    "cannot read": Path.rmdir,
    "unpack base.tar": lambda path: (path / "base.tar.gz").touch(),
    "is no directory dump": lambda path: (path / "readme").touch(),
    "neither a dump of pg_dump nor SQL": lambda path: (path.rmdir(), path.write_bytes(b"ELF\0\1\2")),
}


@pytest.mark.parametrize("reason", NO_SOURCE)
def test_what_is_no_source_is_refused_with_the_reason(reason: str, tmp_path: Path) -> None:
    path = tmp_path / "source"
    path.mkdir()
    NO_SOURCE[reason](path)
    with pytest.raises(UsageError, match=reason):
        examined(OwnData(source=str(path)))


def test_an_option_that_a_form_does_not_have_is_refused(tmp_path: Path) -> None:
    file, backup = tmp_path / "a.sql", tmp_path / "backup"
    file.write_text("SELECT 1;")
    with pytest.raises(UsageError, match="has one database: remove"):
        examined(OwnData(source=str(file), database="other"))
    backup.mkdir()
    (backup / "PG_VERSION").write_text("17\n")
    assert examined(OwnData(source=str(backup), database="other")).database == "other"
    with pytest.raises(UsageError, match="has its locale: remove"):
        examined(OwnData(source=str(backup), locale="C"))


def test_only_a_stopped_data_directory_without_tablespaces_or_a_base_backup_is_copied(tmp_path: Path) -> None:
    for name in ("global", "pg_tblspc"):
        (tmp_path / name).mkdir()
    for state in (ClusterState.SHUT_DOWN, ClusterState.IN_PRODUCTION):
        (tmp_path / "global" / "pg_control").write_bytes(bytes(16) + int(state).to_bytes(4, "little"))
        if state is ClusterState.SHUT_DOWN:
            require_importable(tmp_path)
    with pytest.raises(UsageError, match="not shut down cleanly"):
        require_importable(tmp_path)
    (tmp_path / "backup_label").touch()
    require_importable(tmp_path)
    (tmp_path / "pg_tblspc" / "16999").symlink_to("/nowhere")
    with pytest.raises(UsageError, match="has tablespaces"):
        require_importable(tmp_path)
    (tmp_path / "postmaster.pid").touch()
    with pytest.raises(UsageError, match=r"postmaster\.pid exists"):
        require_importable(tmp_path)


def test_a_database_is_read_in_read_only_sessions_with_limits() -> None:
    conninfo = read_only_conninfo(Dsn("host=h options='-c work_mem=1MB'"))
    for option in ("work_mem=1MB", "default_transaction_read_only=on", "lock_timeout=10s"):
        assert f"-c {option}" in conninfo


def test_a_name_stands_for_a_file_and_for_its_datasets_after_the_file_is_gone(tmp_path: Path) -> None:
    file, store = tmp_path / "shop.sql", NamedDataStore(tmp_path / "store", lambda: [])
    file.write_text("SELECT 1;")
    store.add("shop", OwnData(source=str(file), locale="C"), Selection())
    assert store.names() == ["shop"]
    first = store.resolved(OwnData(source="shop"))
    assert (first.name, first.locale) == ("shop", "C")
    assert store.resolved(OwnData(source="shop", locale="POSIX")).locale == "POSIX"
    file.write_text("SELECT 2;")
    assert store.resolved(OwnData(source="shop")).digest != first.digest
    file.unlink()
    assert store.resolved(OwnData(source="shop")) == first
    assert not store.read("shop").is_there
    store.remove("shop")
    with pytest.raises(UsageError, match="there are no data 'shop'"):
        store.resolved(OwnData(source="shop"))


@pytest.mark.parametrize(
    ("name", "selection", "why"),
    [
        *((name, Selection(), "invalid name") for name in ("", "Shop", "../x", "a b")),
        ("a", Selection(("t",)), "require a DSN"),
    ],
)
def test_names_are_plain_words_and_rows_are_selected_only_in_databases(
    name: str, selection: Selection, why: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=why):
        NamedDataStore(tmp_path, lambda: []).add(name, OwnData(source="x"), selection)
