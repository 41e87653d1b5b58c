"""Bundles: their bytes, what a verification names, and archives that are refused."""

from __future__ import annotations

import hashlib
import json
import lzma
import shutil
import sqlite3
import stat
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from synthetic_study import Synthetic, write_study

from edited_evidence import edited
from pgdyno.cli.main import run_command
from pgdyno.features.bundles import archive, verification
from pgdyno.results.results_file import store_bytes_digest
from pgdyno.results.writer import Writer

OLD = Path(__file__).parents[5] / "tests" / "data" / "results_version_4"
Contents = dict[str, bytes]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("original")
    write_study(folder / "e.sqlite", Synthetic(blocks=6, slices=2))
    return bundled(folder / "e.bundle.zip", folder / "e.sqlite")


@pytest.fixture
def bundle(original: Path, tmp_path: Path) -> Path:
    """A bundle of a study, beside its results file, to be changed."""
    shutil.copytree(original.parent, tmp_path, dirs_exist_ok=True)
    return tmp_path / original.name


def bundled(target: Path, *results: Path) -> Path:
    assert run_command(["bundle", *map(str, results), "-o", str(target)]) == 0
    return target


def contents(bundle: Path) -> Contents:
    with zipfile.ZipFile(bundle) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def rewritten(bundle: Path, changed: Contents, *, renewed: bool = False) -> Path:
    """Write an archive with these contents; ``renewed``: with their checksums."""
    if renewed:
        manifest = json.loads(changed["bundle.json"])
        manifest["sha256"] = {name: hashlib.sha256(changed[name]).hexdigest() for name in manifest["sha256"]}
        changed = {**changed, "bundle.json": json.dumps(manifest).encode()}
    with zipfile.ZipFile(bundle, "w", zipfile.ZIP_DEFLATED) as written:
        for name, content in changed.items():
            written.writestr(name, content)
    return bundle


def verified(bundle: Path, capfd: pytest.CaptureFixture[str]) -> tuple[int, Any]:
    capfd.readouterr()
    status = run_command(["verify", str(bundle), "--json"])
    return status, json.loads(capfd.readouterr().out)


def places(found: Any) -> dict[str, list[str]]:
    named: dict[str, list[str]] = {}
    for of in found["differences"]:
        named.setdefault(of["member"], []).append(of["place"])
    return named


KINDS = [*sorted(path.name.removesuffix(".xz") for path in OLD.glob("*.sqlite.xz")), "fleet.fleet.json"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_bundle_of_every_kind_of_results_is_verified(
    kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in OLD.glob("fleet*" if kind.startswith("fleet.") else f"{kind}.xz"):
        content = path.read_bytes()
        is_packed = path.suffix == ".xz"
        (tmp_path / (path.stem if is_packed else path.name)).write_bytes(
            lzma.decompress(content) if is_packed else content
        )
    first = bundled(tmp_path / "1.zip", tmp_path / kind)
    if kind == "compare.sqlite":  # without a digest of its bytes, so that it is not copied byte by byte
        assert first.read_bytes() == bundled(tmp_path / "2.zip", tmp_path / kind).read_bytes()
    monkeypatch.setenv("PATH", "")  # another machine: no server, no engine
    monkeypatch.setenv("PGDYNO_ENGINE", "/absent")
    status, found = verified(first, capfd)
    assert (status, found["outcome"], found["differences"]) == (0, "verified", [])
    (report,) = (of for of in found["members"] if of["name"] == "report.json")
    assert report["figures"] > 20 and report["is_intact"] and report["is_recomputed"]


def test_a_bundle_has_reports_versions_machine_and_command_and_the_same_bytes_twice(
    bundle: Path, tmp_path: Path
) -> None:
    assert bundle.read_bytes() == bundled(tmp_path / "again.zip", tmp_path / "e.sqlite").read_bytes()
    found = contents(bundle)
    manifest = json.loads(found["bundle.json"])
    assert list(found) == sorted(
        ["README.txt", "bundle.json", "report.html", "report.json", "report.md", "results/e.sqlite"]
    )
    assert found["results/e.sqlite"] == (tmp_path / "e.sqlite").read_bytes()
    assert manifest["sha256"] == {
        name: hashlib.sha256(content).hexdigest() for name, content in found.items() if name != "bundle.json"
    }
    (source,) = manifest["sources"]
    assert manifest["made_by"].startswith("pgdyno 0.") and source["engine"]["profile"] == "release"
    assert [of["version"] for of in source["servers"]] == ["17", "18"] and source["machine"]["cores"] == 2
    assert manifest["command"] == "pgdyno compare 17 18" and b"pgdyno compare 17 18" in found["README.txt"]


def test_several_files_with_the_same_name_are_one_bundle(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    files = [tmp_path / name / "e.sqlite" for name in "ab"]
    for n, path in enumerate(files):
        path.parent.mkdir()
        write_study(path, Synthetic(blocks=6, slices=2, seed=n, created_unix_s=1e9 + n))
    bundle = bundled(tmp_path / "both.zip", *files)
    assert {"results/1/e.sqlite", "results/2/e.sqlite"} < contents(bundle).keys()
    assert verified(bundle, capfd)[0] == 0


def test_a_running_study_is_bundled_as_of_its_last_commit(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write_study(tmp_path / "r.sqlite", Synthetic(blocks=6, slices=2))
    with Writer.resume(tmp_path / "r.sqlite"):
        assert (tmp_path / "r.sqlite-wal").exists()
        bundle = bundled(tmp_path / "r.zip", tmp_path / "r.sqlite")
    assert verified(bundle, capfd)[0] == 0


@pytest.mark.parametrize("renewed", [False, True])
def test_a_changed_digit_of_a_figure_is_named(
    renewed: bool, bundle: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    found = contents(bundle)
    report = json.loads(found["report.json"])
    percent = report["verdicts"][0]["percent"]
    percent["value"] += 1e-6
    found["report.json"] = json.dumps(report).encode()
    status, result = verified(rewritten(bundle, found, renewed=renewed), capfd)
    expected = [".verdicts[0].percent.value"]
    assert status == 1 and places(result) == {"report.json": expected if renewed else ["SHA-256", *expected]}
    assert json.loads(result["differences"][-1]["stated"]) == percent["value"]
    if renewed:
        assert run_command(["verify", str(bundle)]) == 1
        said = capfd.readouterr().out
        assert "! report.json .verdicts[0].percent.value: stated " in said and "NOT VERIFIED" in said


def test_figures_of_another_machine_may_differ_by_rounding(
    bundle: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    found = contents(bundle)
    report = json.loads(found["report.json"])
    report["verdicts"][0]["percent"]["value"] *= 1 + 1e-13
    found["report.json"] = json.dumps(report).encode()
    # Whoever only changes the file is named in any case.
    assert places(verified(rewritten(bundle, found), capfd)[1])["report.json"][1:] == [
        ".verdicts[0].percent.value"
    ]
    status, result = verified(rewritten(bundle, found, renewed=True), capfd)
    assert (status, result["outcome"], result["rounded"]) == (0, "verified", 1)


def test_a_changed_word_of_any_member_is_named(bundle: Path, capfd: pytest.CaptureFixture[str]) -> None:
    found = contents(bundle)
    for member, old, new in (
        ("report.html", b"</h1>", b"!</h1>"),
        ("report.md", b"95% CI", b"99% CI"),
        ("README.txt", b"pgdyno compare 17", b"rm -r / 17"),
        ("bundle.json", b'"version": "17"', b'"version": "19"'),
        ("bundle.json", b'"command": "pgdyno compare 17 18"', b'"command": "pgdyno compare 17 19"'),
    ):
        assert old in found[member]
        found[member] = found[member].replace(old, new)
    status, result = verified(rewritten(bundle, found, renewed=True), capfd)
    named = places(result)
    assert status == 1 and set(named) == {"report.html", "report.md", "README.txt", "bundle.json"}
    assert {of.rpartition(".")[2] for of in named["bundle.json"]} == {"version", "command"}


def test_one_changed_byte_of_the_results_is_named(bundle: Path, capfd: pytest.CaptureFixture[str]) -> None:
    found = contents(bundle)
    results = bytearray(found["results/e.sqlite"])
    results[len(results) // 2] ^= 1
    found["results/e.sqlite"] = bytes(results)
    for renewed in (False, True):
        status, result = verified(rewritten(bundle, dict(found), renewed=renewed), capfd)
        assert status == 1 and set(places(result)) == {"results/e.sqlite"}
        assert "is damaged" in result["differences"][-1]["recomputed"]


def test_a_flipped_bit_of_the_archive_is_named(bundle: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with zipfile.ZipFile(bundle) as opened:
        info = opened.getinfo("results/e.sqlite")
    content = bytearray(bundle.read_bytes())
    content[info.header_offset + info.compress_size // 2] ^= 1
    bundle.write_bytes(content)
    status, result = verified(bundle, capfd)
    assert status == 1 and set(places(result)) == {"results/e.sqlite"}
    assert "results/e.sqlite is damaged" in result["differences"][0]["recomputed"]


def test_figures_that_do_not_follow_from_edited_results_are_named(
    bundle: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The edited file has valid checksums of its own, and the bundle those of its members."""
    found = contents(bundle)
    path = tmp_path / "edited.sqlite"
    path.write_bytes(found["results/e.sqlite"])
    with edited(path) as connection:
        connection.execute("UPDATE slice_count SET ok = ok + 50 WHERE trial % 2 = 0 AND kind = 'new_order'")
    store_bytes_digest(path)
    found["results/e.sqlite"] = path.read_bytes()
    status, result = verified(rewritten(bundle, found, renewed=True), capfd)
    assert status == 1 and ".verdicts[0].percent.value" in places(result)["report.json"]
    assert {"report.json", "report.html", "report.md"} == places(result).keys()


def test_differences_of_another_version_are_listed_and_inconclusive(
    bundle: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(verification, "maker", lambda: "pgdyno 9.9, commit abc; engine 9.9")
        status, result = verified(bundle, capfd)  # the report is the same
        assert (status, result["verified_by"][:10]) == (0, "pgdyno 9.9")
        patch.setattr(archive, "to_json", lambda _: '{"pgdyno_report": 4, "new": 1}')
        status, result = verified(bundle, capfd)
    assert (status, result["outcome"]) == (4, "other-version")
    assert {".pgdyno_report", ".new"} < set(places(result)["report.json"])
    found = contents(bundle)
    found["report.md"] += b"!"  # tampered, whoever made it
    with monkeypatch.context() as patch:
        patch.setattr(verification, "maker", lambda: "pgdyno 9.9")
        assert verified(rewritten(bundle, found), capfd)[0] == 1


def test_a_bundle_of_another_schema_needs_the_version_that_made_it(
    bundle: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = contents(bundle)
    path = tmp_path / "newer.sqlite"
    path.write_bytes(found["results/e.sqlite"])
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 5")
    store_bytes_digest(path)
    found["results/e.sqlite"] = path.read_bytes()
    rewritten(bundle, found, renewed=True)
    assert verified(bundle, capfd)[0] == 1  # no bundle of this version has such a file
    monkeypatch.setattr(verification, "maker", lambda: "pgdyno 9.9, commit abc; engine 9.9")
    status, result = verified(bundle, capfd)
    assert (status, result["outcome"], set(places(result))) == (4, "other-version", {"results/e.sqlite"})
    assert run_command(["verify", str(bundle)]) == 4
    assert "verify it with that one" in capfd.readouterr().out
    found["results/e.sqlite"] += b"!"  # tampered, whoever made it
    assert verified(rewritten(bundle, found), capfd)[0] == 1


def link(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    return info


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("../evil.sqlite", "is no member of a bundle"),
        ("results/../../evil", "is no member of a bundle"),
        ("results/..", "is no member of a bundle"),
        ("/etc/passwd", "is no member of a bundle"),
        ("results/a\\..\\b", "is no member of a bundle"),
        ("results/", "is no member of a bundle"),
        ("evil/", "is no member of a bundle"),
        ("evil.html", "is no member of a bundle"),
        ("report-html", "is no member of a bundle"),
        (link("results/link.sqlite"), "is a link or no file"),
        ("report.md", "two members have the same name"),
        ("results/other.sqlite", "are not those of bundle.json"),
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_member_that_no_bundle_has_is_refused(
    name: str | zipfile.ZipInfo, reason: str, bundle: Path, refusal: Callable[..., str]
) -> None:
    with zipfile.ZipFile(bundle, "a") as opened:
        opened.writestr(name, b"/etc/passwd")
    before = sorted(bundle.parent.rglob("*"))
    said = refusal(f"verify {bundle}", status=1)
    assert reason in said and said.endswith("get another copy of it")
    assert sorted(bundle.parent.rglob("*")) == before


def test_bombs_missing_members_and_other_files_are_refused(
    bundle: Path, refusal: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = contents(bundle)
    monkeypatch.setattr(archive, "SMALL_BYTES", 1 << 20)
    rewritten(bundle, {**found, "report.md": bytes(200 << 20)})
    assert "more than 100 times its size" in refusal(f"verify {bundle}", status=1)
    monkeypatch.setattr(archive, "TEXT_BYTES_MAX", 1000)
    rewritten(bundle, found)
    assert "more than 1,000" in refusal(f"verify {bundle}", status=1)
    monkeypatch.undo()
    rewritten(bundle, {name: of for name, of in found.items() if name != "bundle.json"})
    assert "bundle.json is missing" in refusal(f"verify {bundle}", status=1)
    for text in ("[" * 100_000, "{}", '{"pgdyno_bundle": "x"}', "\0"):
        rewritten(bundle, {**found, "bundle.json": text.encode()})
        assert "is not as pgdyno writes it" in refusal(f"verify {bundle}", status=1)
    newer = found["bundle.json"].replace(b'"pgdyno_bundle": 1', b'"pgdyno_bundle": 2')
    rewritten(bundle, {**found, "bundle.json": newer})
    assert "newer pgdyno" in refusal(f"verify {bundle}", status=1)
    bundle.write_bytes(bundle.read_bytes()[:-100])
    assert "is not a bundle" in refusal(f"verify {bundle}", status=1)
    assert "no bundle at" in refusal(f"verify {bundle}.absent", status=1)
    assert "is not a bundle" in refusal(f"verify {bundle.with_name('e.sqlite')}", status=1)


def test_a_bundle_that_was_packed_again_is_verified(bundle: Path, capfd: pytest.CaptureFixture[str]) -> None:
    found = contents(bundle)
    assert verified(rewritten(bundle, {"results/": b"", **found}), capfd)[0] == 0


def test_a_missing_report_is_named(bundle: Path, capfd: pytest.CaptureFixture[str]) -> None:
    found = contents(bundle)
    del found["report.md"]
    status, result = verified(rewritten(bundle, found), capfd)
    assert status == 1 and places(result) == {"report.md": ["SHA-256", ""]}
    assert [of["name"] for of in result["members"] if not of["is_intact"]] == []


def test_no_file_is_overwritten_and_an_error_names_the_file_of_the_user(
    bundle: Path, tmp_path: Path, refusal: Callable[..., str]
) -> None:
    assert "exists: name another file" in refusal(f"bundle {tmp_path / 'e.sqlite'} -o {bundle}")
    (tmp_path / "no.sqlite").write_text("SQLite, but not really")
    for name in ("no.sqlite", "absent.sqlite"):
        said = refusal(f"bundle {tmp_path / name} -o {tmp_path / 'x.zip'}", status=1)
        assert str(tmp_path / name) in said
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
