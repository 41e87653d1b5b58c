"""The run and report of a study on a fleet of hosts."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from pgdyno.cli.console import require_writable, require_writable_page, say
from pgdyno.cli.live_view import LiveView
from pgdyno.cli.options import Added, RunCall
from pgdyno.cli.report import publish, status_of
from pgdyno.cli.run import requested_study
from pgdyno.errors import FleetError, UsageError
from pgdyno.features.cluster.ray import RayCluster, shared_host
from pgdyno.features.fitting.options import ANYWAY, FitOptions
from pgdyno.features.fleet.coordinator import hosts_of, new_works, paths_of, require_new, resumed, run_fleet
from pgdyno.features.fleet.view import FleetView
from pgdyno.features.hosts.fleet_record import SUFFIX, FleetRecord, HostState, StudyChoices, read_fleet
from pgdyno.features.hosts.sections import read_fleet_report
from pgdyno.features.own_data.options import OtherData
from pgdyno.interruption import Interruption
from pgdyno.measure.progress import PreparationStep
from pgdyno.study.cases import Case, has_password
from pgdyno.units import counted

RESUMED_BY = "pgdyno run --fleet --resume"


def require_own_servers(cases: Sequence[Case]) -> None:
    """Raise UsageError for a running server that all hosts would share."""
    for case in cases:
        for arm in case.study.arms:
            if arm.is_dsn and (host := shared_host(arm.server)):
                raise UsageError(
                    f"--fleet measures a server on each host, but arm {arm.name} is on {host}: use a server "
                    "that pgdyno starts, or a connection string without a host"
                )


def run_on_fleet(call: RunCall, address: str, *, spread: bool, share_machines: bool) -> int:
    """Run a new study on the hosts of the cluster, and report it. Return the exit status."""
    assert call.study is not None
    study, fit, data = call.study, call.added.of(FitOptions), call.added.of(OtherData).data
    others = Added(one for one in call.added if one is not fit)
    # Each host fits the study to itself.
    plain = replace(call, minutes=None, added=others) if fit.is_fitted else call
    asked = requested_study(plain)
    if fit.is_fitted:
        fit.require_fittable(asked.fitted.file, call.minutes)
    cases = asked.request.cases
    require_own_servers(cases)
    if cases[0].study.drivers is not None:
        raise UsageError(
            "--drivers and [fleet] in a study file cannot be combined with --fleet: each host generates its "
            "own load"
        )
    if data is not None and has_password(data):
        raise UsageError("--data with --fleet must not contain a password: put it in ~/.pgpass of each host")
    if spread and fit.is_fitted:
        raise UsageError("--spread cannot be combined with --fit: each host would fit its cases differently")
    if spread and len(cases) < 2:
        raise UsageError("--spread cases requires a study of several cases (got 1): remove --spread")
    path, stem = paths_of(call.results)
    require_writable(path)

    def new_record(hosts: Sequence[str]) -> FleetRecord:
        works = new_works(hosts, stem, [case.name for case in cases] if spread else ())
        require_new(path, works)
        return FleetRecord(
            title=asked.request.title,
            study=study.name,
            text=asked.request.file,
            choices=StudyChoices(
                fit=fit.is_fitted,
                anyway=fit.fit == ANYWAY,
                minutes=call.minutes,
                nearest=call.nearest,
                no_aa=call.no_aa,
                into_existing=call.into_existing,
                data=data,
            ),
            command=call.command,
            works=works,
        )

    return _run(call, address, path, new_record, share_machines=share_machines)


def resume_on_fleet(call: RunCall, address: str, *, share_machines: bool) -> int:
    """Continue a fleet study on its hosts, and report it. Return the exit status."""
    path = call.results
    if not path.name.endswith(SUFFIX):
        raise UsageError(
            f"--fleet --resume continues a file NAME{SUFFIX} (got {path}): name that of the study"
        )
    record = read_fleet(path)
    return _run(
        call, address, path, lambda hosts: resumed(record, hosts, call.minutes), share_machines=share_machines
    )


def _run(
    call: RunCall,
    address: str,
    path: Path,
    record_on: Callable[[Sequence[str]], FleetRecord],
    *,
    share_machines: bool,
) -> int:
    """Run the works of the record on the hosts of the cluster, and report them."""
    output, is_resumed = call.output, call.study is None
    html = output.html or path.with_name(f"{path.name.removesuffix(SUFFIX)}.html")
    require_writable_page(html, path, force=output.force)
    call.added.check_judging(path)
    with ExitStack() as stack:
        with LiveView((), output.quiet, heading="preparing the fleet") as starting:
            starting(PreparationStep("connecting to the cluster"))
            cluster = stack.enter_context(RayCluster(address))
            nodes = cluster.nodes()
            starting(PreparationStep(f"checking {counted(len(nodes), 'node')}"))
            hosts = hosts_of(nodes, cluster.check(nodes), share_machines=share_machines)
        for sentence in hosts.unused:
            say(f"! {sentence}; --share-machines uses it, too", wrap=True)
        record = record_on(list(hosts.nodes))
        many = counted(len({work.host for work in record.works}), "host")
        with Interruption() as interruption, FleetView(f"{record.title}: {many}", output.quiet) as view:
            more_minutes = call.minutes if is_resumed else None
            record = run_fleet(
                cluster,
                hosts,
                path,
                record,
                view,
                interruption,
                is_resumed=is_resumed,
                more_minutes=more_minutes,
            )
    again = shlex.join([*RESUMED_BY.split(), str(path)])
    states = [work.state for work in record.works]
    if not any(path.with_name(work.file).is_file() for work in record.works):
        if interruption.requested:
            raise interruption.interrupted(f"interrupted before the first results; to continue: {again}")
        reasons = "; ".join(dict.fromkeys(work.reason for work in record.works if work.reason))
        raise FleetError(f"no host has results: {reasons}")
    judgements = publish(read_fleet_report(path), path, html, output, call.added)
    rest = sum(not work.is_moved and work.state is not HostState.DONE for work in record.works)
    if rest and interruption.requested:
        say(f"interrupted; to continue: {again}")
        return interruption.exit_status
    if rest:
        say(f"pgdyno: {counted(rest, 'host')} did not complete the study; to continue: {again}")
    return status_of(judgements, quiet=output.quiet) if HostState.DONE in states else 1
