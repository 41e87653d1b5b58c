"""Bundles: ZIP archives of results files, their reports, versions and checksums.

Every member except the results files follows from these. So ``made`` returns what a bundle must contain, for
``pgdyno bundle`` to write and for ``pgdyno verify`` to compare.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import stat
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from pgdyno.cli.report import read_files
from pgdyno.errors import EvidenceError, UsageError, in_one_line
from pgdyno.features.hosts.fleet_record import SUFFIX, read_fleet
from pgdyno.report.html_format import to_html
from pgdyno.report.json_format import to_json
from pgdyno.report.markdown_format import to_markdown
from pgdyno.report.visible_text import json_text
from pgdyno.results.results_file import has_bytes_digest, open_for_reading, store_bytes_digest, translated
from pgdyno.server.engine import version_text

VERSION = 1
"""Version of the format of bundles."""

MANIFEST, RESULTS = "bundle.json", "results/"
TEXTS = ("README.txt", "report.html", "report.json", "report.md", "study.toml")
"""Members that are made from the results files. Only study files have the last one."""

MEMBERS_MAX = 10_000
"""Maximum number of members: a fleet study has one for each host."""

TEXT_BYTES_MAX = 256 << 20
"""Maximum size of a member that is read into memory; the report of 1,000 cases is smaller."""

COMPRESSION_MAX = 100
"""Maximum ratio of the sizes of the contents and the archive. Results files have 4 to 20."""

SMALL_BYTES = 64 << 20
"""Size of the contents up to which any ratio is accepted."""

_MEMBER = re.compile(
    rf"{'|'.join(map(re.escape, (MANIFEST, *TEXTS)))}|{RESULTS}(?:[0-9]{{1,5}}/)?(?!\.\.?$)[^/\\\x00-\x1f]+"
)
_FOLDER = re.compile(rf"{RESULTS}(?:[0-9]{{1,5}}/)?")
"""Folders, which other programs store when they pack a bundle again."""

_NEVER = (1980, 1, 1, 0, 0, 0)
"""Time of every member, so that equal contents are equal archives."""

OF_SERVER = ("provider", "version", "version_text", "build_id", "origin", "extensions")
"""Facts about a server in the manifest. ``build_id`` has a digest of the program ``postgres``."""


@dataclass(frozen=True)
class Source:
    """Facts about a results file, from it. ``servers``: by name of the arm."""

    file: str
    pgdyno_version: str
    engine: Mapping[str, Any]
    command: str
    machine: Mapping[str, Any]
    servers: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Manifest:
    """Content of a bundle. ``results``: the results files in the order of the report."""

    pgdyno_bundle: int
    title: str
    made_by: str
    command: str
    results: Sequence[str]
    sources: Sequence[Source]
    sha256: Mapping[str, str]


@cache
def maker() -> str:
    """Return the versions of pgdyno and of its engine, without the directory of the engine."""
    return re.sub(r", /.*|(?<=no engine): .*", "", version_text().replace("\n", "; "))


def copied(paths: Sequence[Path], folder: Path) -> list[str]:
    """Copy results files to ``folder``; return their members in the order of the report. Raises PgdynoError.

    A file that is being written is copied as of its last commit.
    """
    fleet = [path for path in paths if path.name.endswith(SUFFIX)]
    if fleet and len(paths) > 1:
        raise UsageError(f"a file NAME{SUFFIX} has all hosts of its study: give it alone")
    beside = [path.with_name(of.file) for path in fleet for of in read_fleet(path).works if not of.is_moved]
    every = [*paths, *(path for path in beside if path.is_file())]
    is_unique = len({path.name for path in every}) == len(every)
    members = []
    for n, path in enumerate(every, 1):
        members.append(f"{RESULTS}{path.name}" if is_unique else f"{RESULTS}{n}/{path.name}")
        if not _MEMBER.fullmatch(members[-1]):
            raise UsageError(f"{path} has a name that no archive should have: rename the file")
        copy = folder / members[-1]
        copy.parent.mkdir(parents=True, exist_ok=True)
        if path in fleet:
            shutil.copyfile(path, copy)
        else:
            _copy(path, copy)
    return members


def _copy(path: Path, copy: Path) -> None:
    if has_bytes_digest(path):
        shutil.copyfile(path, copy)
        if has_bytes_digest(copy):  # nobody wrote to it meanwhile
            return
        copy.unlink()
    with closing(open_for_reading(path)) as connection, translated(copy):
        connection.execute("VACUUM INTO ?", (str(copy),))
    store_bytes_digest(copy)


def made(folder: Path, results: Sequence[str], sha256: Mapping[str, str]) -> dict[str, str]:
    """Return the members that follow from the results files in ``folder``, by name. Raises PgdynoError.

    ``sha256``: digests of the results files.
    """
    built = read_files([folder / name for name in results if not _is_beside(name, results)])
    sources = [_source(folder, name) for name in results if not name.endswith(SUFFIX)]
    commands = [built.command] if built.command else [source.command for source, _ in sources]
    studies = {study: None for _, study in sources if study}
    texts = {
        "report.html": to_html(built),
        "report.json": to_json(built),
        "report.md": to_markdown(built),
        **({"study.toml": next(iter(studies))} if len(studies) == 1 else {}),
    }
    manifest = Manifest(
        VERSION,
        built.title,
        maker(),
        "\n  ".join(dict.fromkeys(commands)),
        results,
        [source for source, _ in sources],
        {},
    )
    texts["README.txt"] = _read_me(manifest, texts)
    digests = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}
    whole = {**asdict(manifest), "sha256": dict(sorted({**sha256, **digests}.items()))}
    return {**texts, MANIFEST: f"{json_text(whole)}\n"}


def _is_beside(name: str, results: Sequence[str]) -> bool:
    """Return whether a file belongs to the fleet study in another one, which reads it."""
    return results[0].endswith(SUFFIX) and name != results[0]


def _source(folder: Path, name: str) -> tuple[Source, str]:
    """Return the facts about a results file, and the text of its study file. Raises EvidenceError."""
    path = folder / name
    with closing(open_for_reading(path, verify=False)) as connection, translated(path):
        found = connection.execute(_sql("source")).fetchone()
        arms = connection.execute(_sql("servers")).fetchall()
    if found is None:
        raise EvidenceError(f"{path} has neither a study nor a crash test: check the name")
    version, engine, command, host, study = found
    machine = {key: value for key, value in json.loads(host).items() if key != "states"}
    servers = [{"arm": arm, **_facts(json.loads(server))} for arm, server in arms]
    return Source(name, version, json.loads(engine), command, machine, servers), study


def _facts(server: Mapping[str, Any]) -> dict[str, Any]:
    return {key: server[key] for key in OF_SERVER if server.get(key)}


def _sql(name: str) -> str:
    return files(__package__).joinpath("sql", f"{name}.sql").read_text("utf-8")


def _read_me(manifest: Manifest, texts: Mapping[str, str]) -> str:
    files_ = "\n".join(f"  {name}" for name in sorted([*texts, *manifest.results]))
    study = " (its study file is study.toml)" if "study.toml" in texts else ""
    return (
        f"{manifest.title}\n\n"
        "Open report.html in a browser. It needs no network.\n\n"
        f"Files:\n{files_}\n\n"
        f"Recompute every figure, without any server:\n  pgdyno verify BUNDLE\n\n"
        f"Repeat the measurement{study}:\n  {manifest.command}\n\n"
        f"{MANIFEST} has the versions of servers, machine and pgdyno, and the SHA-256 of every file.\n"
    )


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write(bundle: Path, folder: Path, results: Sequence[str], texts: Mapping[str, str]) -> None:
    """Write the archive to a new file."""
    with zipfile.ZipFile(bundle, "x") as archive:
        for name in sorted([*results, *texts]):
            info = zipfile.ZipInfo(name, _NEVER)
            info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, (stat.S_IFREG | 0o644) << 16
            if name in texts:
                archive.writestr(info, texts[name].encode())
            else:
                info.file_size = (folder / name).stat().st_size
                with archive.open(info, "w") as member, (folder / name).open("rb") as file:
                    shutil.copyfileobj(file, member, 1 << 20)


class Opened:
    """An archive that is safe to read: its members are files with names of a bundle, and not too large."""

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        """Check the list of members. Raises EvidenceError."""
        self._path, self._archive = path, archive
        every = [
            one for one in archive.infolist() if one.file_size or not _FOLDER.fullmatch(one.orig_filename)
        ]
        self.members = {info.filename: info for info in every}
        if len(every) > MEMBERS_MAX:
            raise self._refusal(f"it has more than {MEMBERS_MAX:,} members")
        for info in every:
            if problem := _problem(info):
                raise self._refusal(f"{info.orig_filename[:200]!r} {problem}")
        if len(self.members) < len(every):
            raise self._refusal("two members have the same name")
        size, packed = sum(info.file_size for info in every), path.stat().st_size
        if size > max(SMALL_BYTES, COMPRESSION_MAX * packed):
            raise self._refusal(f"it would take {size:,} bytes, more than {COMPRESSION_MAX} times its size")
        if MANIFEST not in self.members:
            raise self._refusal(f"{MANIFEST} is missing")
        try:
            self.manifest = _MANIFESTS.validate_json(self.text(MANIFEST))
        except (ValidationError, RecursionError) as error:
            raise self._refusal(f"{MANIFEST} is not as pgdyno writes it ({_first_line(error)})") from None
        if self.manifest.pgdyno_bundle > VERSION:
            raise EvidenceError(
                f"{path} was made by a newer pgdyno ({self.manifest.made_by}): upgrade pgdyno"
            )
        results = {name for name in self.members if name.startswith(RESULTS)}
        if not results or sorted(self.manifest.results) != sorted(results):
            raise self._refusal(f"its results files are not those of {MANIFEST}")

    def _refusal(self, problem: str) -> EvidenceError:
        return EvidenceError(f"{self._path} is not a sound bundle: {problem}; get another copy of it")

    def text(self, name: str) -> str:
        """Return the content of a member. Raises DamagedError."""
        with self._reading(name):
            return self._archive.read(name).decode()

    def extract(self, name: str, folder: Path) -> str:
        """Write a member below ``folder``, and return its SHA-256. Raises DamagedError."""
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        with self._reading(name), self._archive.open(name) as member, target.open("xb") as file:
            shutil.copyfileobj(member, file, 1 << 20)
        return sha256_of(target)

    @contextmanager
    def _reading(self, name: str) -> Iterator[None]:
        try:
            yield
        except (zipfile.BadZipFile, zlib.error, EOFError, UnicodeDecodeError, NotImplementedError) as error:
            raise DamagedError(f"{self._path}: {name} is damaged ({in_one_line(error)})") from error


class DamagedError(EvidenceError):
    """A member cannot be read."""


_MANIFESTS = TypeAdapter(Manifest)


def _first_line(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"[:200]
    return "it is too deeply nested"


def _problem(info: zipfile.ZipInfo) -> str:
    """Return why a member does not belong to a bundle; empty if it does."""
    kind = stat.S_IFMT(info.external_attr >> 16)
    if not _MEMBER.fullmatch(info.orig_filename):
        return "is no member of a bundle"
    if kind not in (0, stat.S_IFREG):
        return "is a link or no file"
    if info.flag_bits & 1 or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return "is encrypted, or compressed in another way"
    if not info.filename.startswith(RESULTS) and info.file_size > TEXT_BYTES_MAX:
        return f"has {info.file_size:,} bytes, more than {TEXT_BYTES_MAX:,}"
    return ""


@contextmanager
def opened(path: Path) -> Iterator[Opened]:
    """Open a bundle. Raises EvidenceError: no bundle, or one that no pgdyno wrote."""
    if not path.is_file():
        raise EvidenceError(f"no bundle at {path}: check the name")
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, ValueError, OverflowError, NotImplementedError) as error:
        raise EvidenceError(
            f"{path} is not a bundle, or its end is missing ({in_one_line(error)}): write one with pgdyno "
            "bundle FILE, or copy it again"
        ) from error
    with archive:
        yield Opened(path, archive)
