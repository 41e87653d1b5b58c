"""A crash test: preflight, templates, crashes of all arms in turn, results file."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from pgdyno import __version__
from pgdyno.errors import DiskFullError, EvidenceError, ServerError, StartError, UsageError
from pgdyno.features.crash.plan import (
    CrashKind,
    CrashMoment,
    CrashPlan,
    DiskBehavior,
    FileSystem,
    StandbyCrash,
    planned_crash,
)
from pgdyno.features.crash.records import Crash, CrashArm, CrashTestRecord, CrashWriter, read_crash_test
from pgdyno.features.crash.run import CrashRun, CrashSubject
from pgdyno.features.crash_disk.disk import missing_for_power_cuts
from pgdyno.features.crash_disk.sites import CrashSite, DirectorySite, DiskSite, RealCrashes
from pgdyno.features.running_server.remote import Remote
from pgdyno.interruption import Interruption
from pgdyno.measure.machine import describe_host, machine_resources
from pgdyno.results.records import Guarantee, Kept
from pgdyno.server.build_catalogue import Catalogue, catalogue, empty_cluster
from pgdyno.server.build_store import resolve_all
from pgdyno.server.cache_directory import Cache
from pgdyno.server.connections import Dsn
from pgdyno.server.directories import free_bytes
from pgdyno.server.engine import build_info
from pgdyno.server.settings import ProfileInput, request, safety
from pgdyno.units import format_size, parse_duration_s

WITHOUT_ROOT = (CrashKind.BACKEND, CrashKind.SERVER)

SPARE_BYTES = 1 << 30
"""Free space beyond the size of the disk: template, log, results."""

Say = Callable[[str], None]
OnCrash = Callable[[Crash, str], None]
"""Called with each crash and the name of its arm."""


def require_possible(plan: CrashPlan) -> None:
    """Raise UsageError if this machine cannot do crashes of that kind, or options do not fit together.

    Also raises DiskFullError.
    """
    if plan.real:
        _require_possible_on_real_machine(plan)
        return
    if plan.kind is not CrashKind.POWER and (plan.disk is not DiskBehavior.HONEST or plan.survivors):
        option = f"--survivors {plan.survivors}" if plan.survivors else f"--disk {plan.disk}"
        raise UsageError(f"{option} applies to --kind power only (got {plan.kind}): remove it")
    if running := [arm.name for arm in plan.arms if arm.is_dsn]:
        raise UsageError(
            f"pgdyno crashes only servers that it starts: remove the DSN {running[0]}, or use --real and cut "
            "the power of its machine yourself"
        )
    if plan.kind is not CrashKind.POWER and plan.file_system is not FileSystem.EXT4:
        raise UsageError(f"--file-system applies to --kind power only (got {plan.kind}): remove it")
    if plan.kind is not CrashKind.POWER and plan.at is CrashMoment.COMMIT:
        raise UsageError(f"--at commit applies to --kind power only (got {plan.kind}): remove it")
    if plan.disk.fails_before_cut and plan.at is not CrashMoment.ANY:
        raise UsageError(f"--disk {plan.disk} has its own moment: remove --at {plan.at}")
    if plan.standby is not None:
        _require_possible_with_standby(plan)
    if plan.kind is CrashKind.POWER and (missing := missing_for_power_cuts(plan.file_system)):
        raise UsageError(
            f"power cuts need a simulated disk, and this machine lacks {', '.join(missing)}: "
            f"provide it, or use pgdyno crash --kind {' or '.join(WITHOUT_ROOT)} without one"
        )
    if plan.kind is CrashKind.POWER:
        disks = 1 if plan.standby is None else 2
        place, needed = Cache.open().root, disks * plan.disk_bytes + SPARE_BYTES
        if (free := free_bytes(place)) < needed:
            raise DiskFullError(
                f"the simulated disk may need {format_size(needed)} in {place}, and {format_size(free)} are "
                "free: free disk space, or use pgdyno crash with a smaller --disk-size"
            )


def _require_possible_on_real_machine(plan: CrashPlan) -> None:
    """Raise UsageError unless there is one running server, and no option of a simulated crash."""
    (arm, *others) = plan.arms
    if others or not arm.is_dsn:
        raise UsageError("--real needs one running server as a DSN, for example postgresql://host/postgres")
    default = CrashPlan(arms=plan.arms)
    names = ("kind", "disk", "file_system", "at", "standby", "survivors")
    if changed := [name for name in names if getattr(plan, name) != getattr(default, name)]:
        option = changed[0].replace("_", "-")
        raise UsageError(f"--{option} does not apply to --real, where you cause the crash: remove it")


def _require_possible_with_standby(plan: CrashPlan) -> None:
    """Raise UsageError if options do not fit to a standby."""
    option = f"--standby {plan.standby}"
    if plan.kind is CrashKind.BACKEND:
        raise UsageError(f"{option} applies to --kind power and server (got {plan.kind}): remove it")
    if plan.kind is CrashKind.POWER and plan.standby is StandbyCrash.PRIMARY:
        raise UsageError(
            f"{option}: nobody reads the primary's disk after its crash, so there is no power to cut: add "
            "--kind server"
        )
    if plan.file_system is FileSystem.BTRFS:
        raise UsageError(
            f"{option} does not apply to --file-system btrfs, which refuses copies of a mounted disk: use xfs"
        )
    if plan.disk is not DiskBehavior.HONEST:
        raise UsageError(f"{option} does not apply to --disk {plan.disk}: remove one of them")
    if plan.at is not CrashMoment.ANY:
        raise UsageError(f"{option} does not apply to --at {plan.at}: remove one of them")


def run_crash_test(
    path: Path, plan: CrashPlan, command: str, say: Say, on_crash: OnCrash, interruption: Interruption
) -> None:
    """Run a crash test; continue it if the file has one with the same plan. Completed crashes are kept.

    A file with a study gets the test in addition; ``plan`` is then one of its arms.

    Raises UsageError, ServerError, EngineError, DiskFullError, EvidenceError, Interrupted.
    """
    require_possible(plan)
    done = _crashes_so_far(path, plan)
    cache = Cache.open()
    if plan.real:
        _run_on_real_machine(path, plan, command, done, cache, say, on_crash, interruption)
        return
    cache.sweep()
    subjects, arms = _subjects(plan, cache, say)
    kind_of_site: type[CrashSite] = DiskSite if plan.kind is CrashKind.POWER else DirectorySite
    with contextlib.ExitStack() as stack:
        run = stack.enter_context(cache.live_runs().open("crash"))
        site, standby_site = kind_of_site(run, cache.account, plan), None
        if plan.standby is not None:
            other = stack.enter_context(cache.live_runs().open("crash-standby"))
            standby_site = kind_of_site(other, cache.account, plan, site.templates)
        for build in dict.fromkeys(subject.build for subject in subjects):
            interruption.check()
            say(f"preparing {build.label}")
            site.prepare(build, interruption)
        writer = stack.enter_context(_writer(path, plan, command, arms, cache))
        crashes = CrashRun(plan, site, interruption, standby_site=standby_site)
        for number in range(plan.cuts):
            for subject in subjects:
                interruption.check()
                if (number, subject.arm) in done:
                    continue
                crash = crashes.crash(subject, planned_crash(plan, number, subject.arm))
                if crash.corruption:
                    # Ctrl-C ends the start of a server, too: that is no corruption.
                    interruption.check()
                writer.add_crash(crash)
                on_crash(crash, subject.name)
        writer.finish_test(time.time())


def _run_on_real_machine(
    path: Path,
    plan: CrashPlan,
    command: str,
    done: Collection[tuple[int, int]],
    cache: Cache,
    say: Say,
    on_crash: OnCrash,
    interruption: Interruption,
) -> None:
    spec = plan.arms[0]
    crashes = RealCrashes(plan, Remote(Dsn(spec.server)), path, say, interruption)
    description = crashes.remote.check()
    if description.is_local:
        say(f"! {spec.name} runs on this machine: a power cut also ends pgdyno and its ledger")
    server = {"version": str(description.version), "provider": "dsn"}
    arm = _arm(0, spec.name, server, {}, description.effective)
    with _writer(path, plan, command, [arm], cache) as writer:
        for number in range(plan.cuts):
            if (number, 0) in done:
                continue
            interruption.check()
            crash = crashes.crash(number)
            writer.add_crash(crash)
            crashes.forget()
            on_crash(crash, spec.name)
        writer.finish_test(time.time())


def _crashes_so_far(path: Path, plan: CrashPlan) -> set[tuple[int, int]]:
    """Return number and arm of the crashes in the file. Raises EvidenceError if it has something else."""
    if not path.exists():
        return set()
    found = read_crash_test(path)
    if found is None:  # a study, to which the test is added
        return set()
    if found[0].plan.model_copy(update={"cuts": plan.cuts}) != plan:
        raise EvidenceError(
            f"{path} has a crash test with other options: use another name, or repeat its command: "
            f"{found[0].command}"
        )
    return {(crash.number, crash.arm) for crash in found[2]}


def _writer(path: Path, plan: CrashPlan, command: str, arms: Sequence[CrashArm], cache: Cache) -> CrashWriter:
    if path.exists() and read_crash_test(path) is not None:
        return CrashWriter.resume_test(path, plan)
    record = CrashTestRecord(
        created_unix_s=time.time(),
        pgdyno_version=__version__,
        engine=build_info(),
        command=command,
        host=describe_host(cache.root),
        plan=plan,
    )
    return (CrashWriter.add_test if path.exists() else CrashWriter.begin)(path, record, arms)


def _subjects(plan: CrashPlan, cache: Cache, say: Say) -> tuple[list[CrashSubject], list[CrashArm]]:
    """Return the arms with their builds and validated settings. Raises UsageError, FetchError."""
    machine = machine_resources(cache.root)
    builds = resolve_all([arm.build for arm in plan.arms], store=cache.store(progress=say)).builds
    subjects, arms = [], []
    for index, (spec, build) in enumerate(zip(plan.arms, builds, strict=True)):
        known = catalogue(build, cache)
        fit = ProfileInput(machine, build.version, known.definitions, library_dir=known.library_dir)
        requested = request(spec.profiles, spec.settings, fit, spec.optional, spec.files)
        for note in requested.notes:
            say(f"{spec.name}: {note}")
        subject = CrashSubject(index, spec.name, build, requested.settings, requested.optional)
        subjects.append(subject)
        server = {"version": str(build.version), "provider": build.provider}
        effective = _in_effect(subject, known, cache)
        arms.append(_arm(index, spec.name, server, requested.settings, effective))
    return subjects, arms


def _in_effect(subject: CrashSubject, known: Catalogue, cache: Cache) -> Mapping[str, str]:
    """Return all settings in effect. Raises StartError with the arm if the server does not accept them."""
    if not subject.settings:
        return known.initial
    try:
        with (
            empty_cluster(subject.build, cache, "try") as cluster,
            cluster.start(subject.settings, optional=subject.optional) as server,
        ):
            return dict(server.effective)
    except ServerError as error:
        raise StartError(f"{subject.name}: {error}") from error


def _arm(
    index: int,
    name: str,
    server: Mapping[str, str],
    settings: Mapping[str, str],
    effective: Mapping[str, str],
) -> CrashArm:
    badges = safety(effective).badges
    return CrashArm(
        arm=index,
        name=name,
        server=server,
        settings=settings,
        safety=[Guarantee(badge.name, Kept(badge.kept), badge.reason) for badge in badges],
        wal_writer_delay_s=parse_duration_s(effective["wal_writer_delay"], bare="ms"),
    )
