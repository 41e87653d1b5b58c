"""Write the man pages of the program and of each command, from the declarations that make ``--help``.

    python docs/man_pages.py DIRECTORY

The wheel has them in share/man/man1 (hatch_build.py). They are not kept in the repository.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import typer

from pgdyno import __version__
from pgdyno.cli import main
from pgdyno.cli.features import features
from pgdyno.cli.options import StudyKey

ROOT = Path(__file__).resolve().parents[1]
PGBENCH_HELP = ROOT / "crates" / "pgdyno-pgbench" / "src" / "help.txt"

Entry = tuple[str, str]
"""A term with its explanation."""


def man_pages() -> dict[str, str]:
    """Return the text of each page by its file name, such as ``pgdyno-compare.1``."""
    features()
    program: Any = typer.main.get_command(main.app)
    context = typer.Context(program, info_name="pgdyno", resilient_parsing=True, **program.context_settings)
    found = dict(_pages((), program, context))
    return {f"{'-'.join(('pgdyno', *path))}.1": text for path, text in found.items()}


def _pages(path: Sequence[str], command: Any, context: Any) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the page of a command, and those of the commands within."""
    yield tuple(path), "\n".join(_page(path, command, context)) + "\n"
    for name, one in getattr(command, "commands", {}).items():
        inner = one.context_class(one, info_name=name, parent=context, resilient_parsing=True)
        yield from _pages((*path, name), one, inner)


def _page(path: Sequence[str], command: Any, context: Any) -> Iterator[str]:
    name, within = "-".join(("pgdyno", *path)), getattr(command, "commands", {})
    about = command.help or command.get_short_help_str(200)
    first, _, rest = about.partition("\n\n")
    yield f'.TH "{name.upper()}" 1 "" "pgdyno {__version__}" "pgdyno"'
    yield from (".nh", ".ad l")
    yield from _section("Name", [f"{name} \\- {text(' '.join(first.split()).rstrip('.'))}"])
    usage = " ".join(command.collect_usage_pieces(context))
    yield from _section("Synopsis", [f"\\fB{text(' '.join(('pgdyno', *path)))}\\fR {text(usage)}"])
    yield from _section("Description", _paragraphs(rest or first))
    records = [one.get_help_record(context) for one in command.get_params(context)]
    known = [record for record in records if record]
    yield from _section("Arguments", _entries(one for one in known if not one[0].startswith("-")))
    yield from _section("Options", _entries(one for one in known if one[0].startswith("-")))
    moved: dict[str, StudyKey] = getattr(command, "moved", {})
    keys = ((option, f"Key {key.key} of the table [{key.table}].") for option, key in moved.items())
    yield from _section("Keys of study files", _entries(keys))
    shorts = ((one, of.get_short_help_str(200)) for one, of in within.items())
    yield from _section("Commands", _entries(shorts))
    if tuple(path) == ("pgbench",):
        program = PGBENCH_HELP.read_text("utf-8").replace("pgbench-program", "pgdyno pgbench")
        yield from _section("Options of pgbench", _example(program.splitlines()))
    if not path:
        status = re.sub(r"\s+", " ", (main.main.__doc__ or "").partition("Exit status: ")[2]).strip()
        yield from _section("Exit status", [text(status)])
    others = [*(f"{name}-{one}" for one in within), *(["-".join(("pgdyno", *path[:-1]))] if path else [])]
    pages = ", ".join(f"\\fB{text(one)}\\fR(1)" for one in sorted(others))
    yield from _section("See also", [f"{pages}. The command \\fBpgdyno docs\\fR prints all other pages."])


def _section(title: str, lines: Iterable[str]) -> list[str]:
    """Return a section; nothing without lines."""
    own = list(lines)
    return [f'.SH "{title.upper()}"', *own] if own else []


def _entries(entries: Iterable[Entry]) -> Iterator[str]:
    for term, explanation in entries:
        yield from (".TP", f"\\fB{text(' '.join(term.split()))}\\fR", text(" ".join(explanation.split())))


def _paragraphs(about: str) -> Iterator[str]:
    """Yield the paragraphs of a help; those that begin with a backspace keep their lines."""
    is_first = True
    for paragraph in re.split(r"\n\s*\n|\f\n?", about):
        lines = paragraph.strip("\n").splitlines()
        if not "".join(lines).strip():
            continue
        yield from [] if is_first else [".PP"]
        is_first = False
        if lines[0].strip() == "\b":
            yield from _example(lines[1:])
        else:
            yield text(" ".join(" ".join(lines).split()))


def _example(lines: Sequence[str]) -> Iterator[str]:
    yield from (".RS 2", ".nf", *(text(line) for line in lines), ".fi", ".RE")


def text(plain: str) -> str:
    """Return a line of groff that prints a text. Characters beyond ASCII have their numbers."""
    escaped = plain.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
    escaped = escaped.replace("^", "\\(ha").replace("~", "\\(ti")
    escaped = re.sub(r"[^\x00-\x7f]", lambda found: f"\\[u{ord(found[0]):04X}]", escaped)
    return f"\\&{escaped}" if escaped.startswith(".") else escaped


def write_pages(directory: Path) -> list[Path]:
    """Write the pages into a directory, and return their paths."""
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, page in man_pages().items():
        paths.append(directory / name)
        paths[-1].write_text(page, encoding="ascii")
    return paths


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]))
