"""Run benchmarks and print a table of their figures.

``python -m bench [--smoke] [--rounds N] [--init-scale N] [--warehouses N] [NAME…]``. ``stopping``,
``gates``, ``history``, ``tails``, ``verdict``, ``disturbed-blocks``, ``dialects``, ``bisect``, ``driver-
nodes``, ``fleet``, ``network-clients``, ``ratios``, ``simulated-why``, ``warm-ups`` and ``why`` run alone
and have their own options.
``ratios`` compares the ratios to other programs with earlier ones.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from bench import (
    analysis,
    bisect,
    dialects,
    disturbed_blocks,
    driver_nodes,
    driver_overhead,
    fleet,
    gates,
    history,
    insert,
    linkbench,
    load,
    network_clients,
    original_programs,
    page,
    pairs,
    pgbench,
    ratios,
    readings,
    real_clients,
    restore,
    scripts,
    simulated_disk,
    simulated_why,
    slices,
    stopping,
    sysbench,
    tails,
    telemetry,
    tpcc,
    verdict,
    warm_ups,
    why,
)
from bench.environment import FULL, SMOKE, Environment, Sizes, benchmark_environment
from bench.figure import Figure, markdown
from pgdyno.cli.features import features
from pgdyno.errors import PgdynoError
from pgdyno.server.engine import build_info

BENCHMARKS: Mapping[str, Callable[[Environment, Sizes], Iterator[Figure]]] = {
    "scripts": scripts.figures,
    "sysbench": sysbench.figures,
    "tpcc": tpcc.figures,
    "load": load.figures,
    "restore": restore.figures,
    "linkbench": linkbench.figures,
    "insert": insert.figures,
    "simulated-disk": simulated_disk.figures,
    "telemetry": telemetry.figures,
    "readings": readings.figures,
    "analysis": analysis.figures,
    "slices": slices.figures,
    "page": page.figures,
    "pairs": pairs.figures,
    "driver-overhead": driver_overhead.figures,
    "real-clients": real_clients.figures,
    "original-programs": original_programs.figures,
    "pgbench-startup": pgbench.startup,
    "pgbench-init": pgbench.initialise,
}
LONG = ("page", "pairs", "driver-overhead", "real-clients", "original-programs")
"""Benchmarks that run only if they are named: a study, the noise of the machine in 20 minutes, what needs
Ray, and programs that few machines have."""


OWN: Mapping[str, Callable[[Sequence[str]], int]] = {
    "stopping": stopping.main,
    "bisect": bisect.main,
    "gates": gates.main,
    "history": history.main,
    "tails": tails.main,
    "verdict": verdict.main,
    "disturbed-blocks": disturbed_blocks.main,
    "dialects": dialects.main,
    "driver-nodes": driver_nodes.main,
    "fleet": fleet.main,
    "network-clients": network_clients.main,
    "ratios": ratios.main,
    "warm-ups": warm_ups.main,
    "simulated-why": simulated_why.main,
    "why": why.main,
}
"""Benchmarks that do not need the shared server and print results in their own format."""


def main(arguments: list[str]) -> int:
    """Run the command line. A figure out of bounds is no failure: only ``ratios`` gates."""
    features()
    if arguments and arguments[0] in OWN:
        return OWN[arguments[0]](arguments[1:])
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"of {', '.join(BENCHMARKS)}; default: all but {', '.join(LONG)}",
    )
    parser.add_argument("--smoke", action="store_true", help="tiny, in seconds: do they all still run?")
    parser.add_argument(
        "--rounds", type=_count, metavar="N", help="runs of each; from 6 on ratios have intervals"
    )
    parser.add_argument("--init-scale", type=_count, metavar="N", help="of pgbench-init [default: 100]")
    parser.add_argument(
        "--warehouses", type=_count, metavar="N", help="of tpcc, load and restore, 100 MB each [default: 10]"
    )
    chosen = parser.parse_args(arguments)
    unknown = sorted(set(chosen.names) - set(BENCHMARKS))
    if unknown:
        parser.error(f"no benchmark is called {unknown[0]}: there are {', '.join(BENCHMARKS)}")
    engine = build_info()
    if engine["profile"] != "release" and not chosen.smoke:
        parser.error("the engine is a debug build: make setup builds the one to measure")
    figures: list[Figure] = []
    sizes = SMOKE if chosen.smoke else FULL
    if chosen.rounds:
        sizes = replace(sizes, pairs=chosen.rounds)
    if chosen.init_scale:
        sizes = replace(sizes, init_scale=chosen.init_scale)
    if chosen.warehouses:
        sizes = replace(sizes, warehouses=chosen.warehouses)
    with benchmark_environment(sizes) as here:
        for name in chosen.names or [name for name in BENCHMARKS if name not in LONG]:
            for figure in BENCHMARKS[name](here, sizes):
                ratio = "" if figure.ratio is None else f", {figure.ratio:.3f} of {figure.against}"
                print(f"{figure.name}: {figure.ours:.4g} {figure.unit}{ratio}", file=sys.stderr)
                figures.append(figure)
    print(markdown(figures))
    return 0


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is no number of 1 or more")
    return int(text)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except PgdynoError as error:
        sys.exit(f"bench: {error}")
