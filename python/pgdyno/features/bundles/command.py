"""``pgdyno bundle`` and ``pgdyno verify``: one archive with results files and reports, and its check."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from pgdyno.cli import options
from pgdyno.cli.console import out, print_json, require_writable, say
from pgdyno.errors import PgdynoError, UsageError
from pgdyno.features.bundles.archive import MANIFEST, copied, made, sha256_of, write
from pgdyno.features.bundles.verification import (
    EXIT_STATUSES,
    SHA_256,
    Difference,
    Member,
    Outcome,
    Verification,
    verify_bundle,
)
from pgdyno.units import counted, format_size

SUFFIX = ".bundle.zip"

DIFFERENCES_SHOWN_MAX = 20
"""Maximum number of differences on a terminal; JSON has all."""


def bundle(
    evidence: Annotated[
        list[Path], typer.Argument(metavar="FILE…", help="Results files of one report, as for pgdyno report.")
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="BUNDLE", help=f"Archive to write. [default: FILE{SUFFIX}]"),
    ] = None,
) -> None:
    """Write results, reports and checksums to one archive.

    `pgdyno verify` recomputes it.

    Example:

    \b
      pgdyno bundle results.sqlite && pgdyno verify results.bundle.zip
    """
    target = output or Path(f"{evidence[0].name.removesuffix('.sqlite')}{SUFFIX}")
    require_writable(target)
    if target.exists():
        raise UsageError(f"{target} exists: name another file with --output, or remove it")
    try:
        with tempfile.TemporaryDirectory(prefix=".pgdyno-bundle-", dir=target.parent) as made_in:
            folder = Path(made_in)
            results = copied(evidence, folder)
            texts = made(folder, results, {name: sha256_of(folder / name) for name in results})
            write(folder / SUFFIX, folder, results, texts)
            (folder / SUFFIX).rename(target)
    except OSError as error:
        raise PgdynoError(f"cannot write {target}: {error.strerror or error}") from error
    say(f"{target}: {format_size(target.stat().st_size)}, {counted(len(results) + len(texts), 'file')}")


def verify(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="Archive of pgdyno bundle.")],
    json: options.Json = False,
) -> int:
    """Recompute the figures of a bundle, and compare. No server is needed.

    Exit status: 0 if everything matches, 1 if not, 4 if another version of pgdyno made the bundle and its
    report differs. Example:

    \b
      pgdyno verify results.bundle.zip
    """
    try:
        found = verify_bundle(bundle)
    except OSError as error:
        raise PgdynoError(
            f"cannot verify {bundle}: {error.strerror or error}: free disk space, or set TMPDIR"
        ) from error
    if json:
        print_json({"pgdyno_verify": 1, **asdict(found)})
    else:
        for line in verification_lines(found):
            out.print(line, soft_wrap=True)
    return EXIT_STATUSES[found.outcome]


def verification_lines(found: Verification) -> Iterator[str]:
    """Yield the lines of a verification."""
    yield f"Made by     {found.made_by}"
    yield f"Verified by {found.verified_by}"
    width = max(len(one.name) for one in found.members)
    for one in found.members:
        digest = "matches" if one.is_intact else "DIFFERS"
        digest = "" if one.name == MANIFEST else f"{SHA_256} {digest}"
        yield f"  {one.name:{width}}  {digest:15}  {_state(one, found)}"
    if found.rounded:
        yield f"{counted(found.rounded, 'figure')} differ by rounding only."
    for difference in found.differences[:DIFFERENCES_SHOWN_MAX]:
        yield f"! {difference_text(difference)}"
    if (more := len(found.differences) - DIFFERENCES_SHOWN_MAX) > 0:
        yield f"! {counted(more, 'more difference')}: see --json"
    yield _conclusion(found)


def _state(one: Member, found: Verification) -> str:
    if not one.is_recomputed:
        return "evidence"
    n = sum(of.member == one.name and of.place != SHA_256 for of in found.differences)
    amount = f"{counted(one.figures, 'figure')} and {counted(one.texts, 'text')} " if one.figures else ""
    return f"{amount}recomputed: {counted(n, 'difference') if n else 'equal'}"


def difference_text(of: Difference) -> str:
    """Return a difference in one line."""
    name = f"{of.member} {of.place}".strip()
    if not of.place:
        return f"{name}: {of.recomputed or of.stated or 'missing'}"
    stated, recomputed = ("absent" if one is None else one for one in (of.stated, of.recomputed))
    return f"{name}: stated {stated}, recomputed {recomputed}"


def _conclusion(found: Verification) -> str:
    n = counted(len(found.differences), "difference")
    figures = counted(sum(one.figures for one in found.members), "figure")
    match found.outcome:
        case Outcome.VERIFIED:
            return f"Verified: all {figures} follow from the results."
        case Outcome.OTHER_VERSION:
            return (
                f"Inconclusive: {n}, but another version of pgdyno made the bundle: verify it with that one."
            )
    return f"NOT VERIFIED: {n}. The bundle is damaged or was changed: ask its author for another copy."
