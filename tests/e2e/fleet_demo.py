"""A demonstration: three nodes on this machine, of which two generate the load, and one is killed.

    python tests/e2e/fleet_demo.py 17 18 --minutes 2 --directory fleet-demo

The node is killed (SIGKILL) in the middle of a block, which is repeated with the nodes that are left.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from program import write_study

from pgdyno.errors import PgdynoError
from pgdyno.server.engine import find_engine

NODES = ("n1", "n2", "n3")
MEMORY_BYTES = 80_000_000
"""Object store of a node, the minimum of Ray: the load generators store nothing there."""

PGDYNO = "import sys; sys.argv[0] = 'pgdyno'; from pgdyno.cli.main import main; sys.exit(main())"


def main() -> int:
    """Return the exit status of the comparison."""
    parser = argparse.ArgumentParser(description="Compare servers with load generators on three local nodes.")
    parser.add_argument("arms", nargs="*", default=["17", "18"])
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--directory", type=Path, default=Path("fleet-demo"))
    parser.add_argument("--kill-in-block", type=int, default=2, help="0: kill no node")
    asked = parser.parse_args()
    try:
        from ray.cluster_utils import Cluster
    except ImportError:
        print("Ray is not installed: pip install '.[fleet]'", file=sys.stderr)
        return 2
    asked.directory.mkdir(parents=True, exist_ok=True)
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    os.environ["PGDYNO_ENGINE"] = str(find_engine())
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    options = {
        "num_cpus": 1,
        "object_store_memory": MEMORY_BYTES,
        "include_dashboard": False,
        "include_log_monitor": False,
    }
    say("starting a Ray cluster of three nodes on this machine")
    cluster = Cluster(initialize_head=True, head_node_args={**options, "node_name": NODES[0]})
    try:
        others = [cluster.add_node(**options, node_name=name) for name in NODES[1:]]
        return compare(asked, cluster.address, lambda: cluster.remove_node(others[-1], allow_graceful=False))
    finally:
        cluster.shutdown()


def compare(asked: argparse.Namespace, address: str, kill: Callable[[], Any]) -> int:
    """Run the comparison, and kill a node once in a block that it drives."""
    results = asked.directory / f"{time.strftime('%Y%m%d-%H%M%S')}.sqlite"
    run = {"warmup": "2s", "window": "4s", "slice": "1s", "stop": "budget", "aa": False}
    study = write_study(
        results.with_suffix(".toml"),
        asked.arms,
        workload={"kind": "pgbench", "scale": 10},
        drive={"clients": 8},
        run={**run, "budget": 60 * asked.minutes},
        fleet={"drivers": [NODES[0], NODES[2]], "on_node_loss": "continue", "address": address},
    )
    command = [sys.executable, "-c", PGDYNO, "run", str(study), "--evidence", str(results)]
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert running.stderr is not None
    for line in running.stderr:
        say(line.rstrip())
        if asked.kill_in_block and line.startswith(f"block {asked.kill_in_block}"):
            asked.kill_in_block = 0
            threading.Timer(6.0, lambda: (say(f"-- killing node {NODES[2]}"), kill())).start()
    status = running.wait()
    if status == 0:
        say("\nthe load generators, as in the report:")
        report = [sys.executable, "-c", PGDYNO, "report", str(results), "--full"]
        shown = subprocess.run(report, capture_output=True, text=True, check=True).stdout
        say(shown[shown.index("\nLoad generators\n") :].split("\n\n")[0])
    return status


def say(text: str) -> None:
    """Print a line at once."""
    print(text, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except PgdynoError as error:
        print(f"fleet-demo: {error}", file=sys.stderr)
        sys.exit(error.exit_status)
