"""Options of ``pgdyno run`` for a fleet of hosts, and the run and report of a fleet study."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from psycopg.conninfo import conninfo_to_dict

from pgdyno.cli.console import say
from pgdyno.cli.gate_options import GateOptions
from pgdyno.cli.options import Output
from pgdyno.cli.output_files import require_writable, require_writable_page
from pgdyno.cli.report import print_report, write_html
from pgdyno.errors import FleetError, UsageError
from pgdyno.features.fleet.records import SUFFIX, FleetRecord, HostState, StudyChoices, read_fleet
from pgdyno.features.hosts.sections import read_fleet_report
from pgdyno.interruption import Interruption
from pgdyno.study.cases import Case, has_password
from pgdyno.units import counted

if TYPE_CHECKING:
    from pgdyno.features.cluster.ray import RayCluster
    from pgdyno.features.fleet.coordinator import Hosts


RESUMED_BY = "pgdyno run --fleet --resume"

FLEET_READ = ("fleet", "spread", "share_machines")
"""Parameters that a resume reads, too, or refuses itself."""


@dataclass(frozen=True)
class FleetOptions:
    """Options that run a study on the nodes of a Ray cluster."""

    fleet: Annotated[
        str | None,
        typer.Option(
            metavar="[ADDRESS]",
            help="Run the study on every node of a Ray cluster at once, and pool the results. ADDRESS: "
            "HOST:PORT of its head. [default: the cluster of this machine]",
        ),
    ] = None
    spread: Annotated[
        Literal["cases"] | None,
        typer.Option(
            help="With --fleet, distribute the cases over the hosts. Without it, each host has all."
        ),
    ] = None
    share_machines: Annotated[
        bool,
        typer.Option(
            "--share-machines",
            help="With --fleet, use all nodes of a machine at once. They disturb each other.",
        ),
    ] = False

    def check(self) -> None:
        """Raise UsageError for options that require --fleet."""
        if self.fleet is None and (self.spread is not None or self.share_machines):
            option = "--spread" if self.spread is not None else "--share-machines"
            raise UsageError(f"{option} requires --fleet: add --fleet, or remove {option}")
        if self.fleet is not None and self.fleet.startswith("ray://"):
            raise UsageError(f"--fleet {self.fleet} is a Ray client: give HOST:PORT of the head")


def require_own_servers(cases: Sequence[Case]) -> None:
    """Raise UsageError for a running server that all hosts would share."""
    for case in cases:
        for arm in case.study.arms:
            if not arm.is_dsn:
                continue
            host = str(conninfo_to_dict(arm.server).get("host", "")) if arm.server else ""
            if host and not (host.startswith("/") or host in ("localhost", "::1") or host.startswith("127.")):
                raise UsageError(
                    f"--fleet measures a server on each host, but arm {arm.name} is on {host}: use a server "
                    "that pgdyno starts, or a connection string without a host"
                )


def run_on_fleet(
    options: FleetOptions,
    *,
    study: Path,
    text: str,
    title: str,
    cases: Sequence[Case],
    choices: StudyChoices,
    command: str,
    evidence: Path,
    output: Output,
    gating: GateOptions,
) -> int:
    """Run a new study on the hosts of the cluster, and report it. Return the exit status."""
    from pgdyno.features.fleet.coordinator import new_works, paths_of, require_new  # noqa: PLC0415

    require_own_servers(cases)
    if cases[0].study.drivers is not None:
        raise UsageError(
            "--drivers and [fleet] in a study file cannot be combined with --fleet: each host generates its "
            "own load"
        )
    if choices.data is not None and has_password(choices.data):
        raise UsageError("--data with --fleet must not contain a password: put it in ~/.pgpass of each host")
    if options.spread is not None and choices.fit:
        raise UsageError("--spread cannot be combined with --fit: each host would fit its cases differently")
    if options.spread is not None and len(cases) < 2:
        raise UsageError("--spread cases requires a study of several cases (got 1): remove --spread")
    path, stem = paths_of(evidence)
    require_writable(path)
    html = output.html or path.with_name(f"{stem}.html")
    require_writable_page(html, path, force=output.force)
    gating.check(path)
    with _connected(options) as cluster:
        hosts = _hosts(cluster, options)
        works = new_works(list(hosts.nodes), stem, [case.name for case in cases] if options.spread else ())
        require_new(path, works)
        record = FleetRecord(
            title=title, study=study.name, text=text, choices=choices, command=command, works=works
        )
        return _run(cluster, hosts, path, record, html, output, gating)


def resume_on_fleet(
    options: FleetOptions, path: Path, more_minutes: float | None, output: Output, gating: GateOptions
) -> int:
    """Continue a fleet study on its hosts, and report it. Return the exit status."""
    from pgdyno.features.fleet.coordinator import resumed  # noqa: PLC0415

    if not path.name.endswith(SUFFIX):
        raise UsageError(
            f"--fleet --resume continues a file NAME{SUFFIX} (got {path}): name that of the study"
        )
    if options.spread is not None:
        raise UsageError("--spread cannot be combined with --resume, which keeps the cases of each host")
    record = read_fleet(path)
    html = output.html or path.with_name(f"{path.name.removesuffix(SUFFIX)}.html")
    require_writable_page(html, path, force=output.force)
    gating.check(path)
    with _connected(options) as cluster:
        hosts = _hosts(cluster, options)
        record = resumed(record, list(hosts.nodes), more_minutes)
        return _run(
            cluster, hosts, path, record, html, output, gating, resume=True, more_minutes=more_minutes
        )


def _connected(options: FleetOptions) -> AbstractContextManager[RayCluster]:
    from pgdyno.features.cluster.ray import RayCluster  # noqa: PLC0415 - imports Ray

    assert options.fleet is not None
    return RayCluster(options.fleet)


def _hosts(cluster: RayCluster, options: FleetOptions) -> Hosts:
    """Return the hosts of a cluster after the checks of all nodes. Raises FleetError."""
    from pgdyno.features.fleet.coordinator import hosts_of  # noqa: PLC0415

    nodes = cluster.nodes()
    hosts = hosts_of(nodes, cluster.check(nodes), share_machines=options.share_machines)
    for sentence in hosts.unused:
        say(f"! {sentence}; --share-machines uses it, too", wrap=True)
    return hosts


def _run(
    cluster: RayCluster,
    hosts: Hosts,
    path: Path,
    record: FleetRecord,
    html: Path,
    output: Output,
    gating: GateOptions,
    *,
    resume: bool = False,
    more_minutes: float | None = None,
) -> int:
    from pgdyno.features.fleet.coordinator import run_fleet  # noqa: PLC0415
    from pgdyno.features.fleet.view import FleetView  # noqa: PLC0415

    with Interruption() as interruption:
        many = counted(len({work.host for work in record.works}), "host")
        with FleetView(f"{record.title}: {many}", output.quiet) as view:
            record = run_fleet(
                cluster,
                hosts,
                path,
                record,
                view,
                interruption,
                is_resumed=resume,
                more_minutes=more_minutes,
            )
    again = shlex.join([*RESUMED_BY.split(), str(path)])
    states = [work.state for work in record.works]
    if not any(path.with_name(work.file).is_file() for work in record.works):
        if interruption.requested:
            raise interruption.interrupted(f"interrupted before the first results; to continue: {again}")
        reasons = "; ".join(dict.fromkeys(work.reason for work in record.works if work.reason))
        raise FleetError(f"no host has results: {reasons}")
    built = read_fleet_report(path)
    write_html(built, html, force=output.force)
    found = gating.gate(built)
    print_report(built, "json" if output.json else "full" if output.full else "terminal", [path], found)
    if not output.quiet:
        say(f"results {path}   report {html}")
    gating.summarise(built, found, [path, html])
    rest = sum(not work.is_moved and work.state is not HostState.DONE for work in record.works)
    if rest and interruption.requested:
        say(f"interrupted; to continue: {again}")
        return interruption.exit_status
    if rest:
        say(f"pgdyno: {counted(rest, 'host')} did not complete the study; to continue: {again}")
    return gating.status(found, quiet=output.quiet) if HostState.DONE in states else 1
