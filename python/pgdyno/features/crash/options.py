"""The options ``--durability`` and ``--cuts``: a crash test of a study's arms after the study."""

from __future__ import annotations

import secrets
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from pgdyno.cli.options import StudyOptions
from pgdyno.errors import UsageError
from pgdyno.features.crash_disk.plan import CUTS, CUTS_MAX, CrashKind, CrashPlan
from pgdyno.interruption import Interruption
from pgdyno.study.plan import Study


@dataclass(frozen=True)
class DurabilityOptions(StudyOptions):
    """Options of commands that run a study."""

    COMMANDS: ClassVar = {"compare": "", "run": ""}
    READ_ON_RESUME = True
    KIND: ClassVar = CrashKind.POWER

    durability: Annotated[
        bool,
        typer.Option(
            "--durability",
            help="After the study, cut the power under the servers of all arms and count lost commits, as "
            "pgdyno crash does. The report has speed and loss side by side. Needs root, /dev/fuse and a loop "
            "device.",
        ),
    ] = False
    cuts: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            max=CUTS_MAX,
            help=f"Power cuts per arm with --durability, about 7 s each. [default: {CUTS}]",
        ),
    ] = None

    def check(self, studies: Callable[[], Sequence[Study]]) -> None:
        """Raise UsageError if the arms of these cases cannot crash on this machine, or differ by case."""
        if not self.durability:
            if self.cuts is not None:
                raise UsageError("--cuts requires --durability: add it, or remove --cuts")
            return
        first, *others = studies()
        if any(study.arms != first.arms for study in others):
            raise UsageError(
                "--durability requires the same servers and settings in all cases: remove it, and use pgdyno "
                "crash"
            )
        from pgdyno.features.crash.run import require_possible  # noqa: PLC0415

        require_possible(CrashPlan(arms=first.arms, kind=self.KIND))

    def check_elsewhere(self, option: str) -> None:
        """Refuse ``--durability`` and ``--cuts``: the follow-up is run only with a study on this machine."""
        if self.durability:
            raise UsageError(f"--durability cannot be combined with {option}: run pgdyno crash on a host")
        self.check(lambda: [])

    @property
    def follow_up(self) -> str:
        """Name of the crash test; empty without ``--durability``."""
        return "crash test" if self.durability else ""

    def follow(self, path: Path, interruption: Interruption, *, quiet: bool) -> None:
        """Run or continue the crash test of the study in a results file, with the builds and settings that
        were measured. Raises PgdynoError.
        """
        from pgdyno.cli.live_view import LiveView  # noqa: PLC0415
        from pgdyno.features.crash.run import run_crash_test  # noqa: PLC0415
        from pgdyno.features.crash_disk.records import read_crash_test  # noqa: PLC0415
        from pgdyno.results.reader import Evidence  # noqa: PLC0415

        found = read_crash_test(path, verify=False)
        seed = found[0].plan.seed if found else secrets.randbelow(2**48)
        cuts = self.cuts or (found[0].plan.cuts if found else CUTS)
        with Evidence(path, verify=False) as evidence:
            study, arms = evidence.study().plan, evidence.arms()
        measured = [
            spec.model_copy(
                update={
                    "server": arm.server["bin_dir"],
                    "build_options": "",
                    "extension": "",
                    "wal_dir": "",  # all files are on the disk whose power is cut
                    "profiles": (),
                    "files": {},
                    "settings": dict(arm.settings_requested),
                    "optional": (*spec.optional, *(name for name in spec.known_settings if "." in name)),
                }
            )
            for spec, arm in zip(study.arms, arms, strict=True)
        ]
        plan = CrashPlan(
            arms=tuple(measured),
            kind=self.KIND,
            cuts=cuts,
            seed=seed,
            checksums=study.checksums,
            wal_segment_mb=study.wal_segment_mb,
        )

        command = shlex.join(["pgdyno", *sys.argv[1:]])
        with LiveView((), quiet, interruption, "crash test") as view:
            run_crash_test(path, plan, command, view, interruption)

    def on_resume(self) -> list[str]:
        """Return the options with which a resumed study continues the test."""
        if not self.durability:
            return []
        return ["--durability", *(["--cuts", str(self.cuts)] if self.cuts is not None else [])]
