"""All of it together."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pgdyno.probe.machine.clock import Clock, read_clock
from pgdyno.probe.machine.disk import Disk, read_disk
from pgdyno.probe.machine.kernel import Kernel, read_kernel
from pgdyno.probe.machine.limits import Limits, read_limits
from pgdyno.probe.machine.load import Counters, Load, between, read_counters
from pgdyno.probe.machine.memory import Memory, read_memory
from pgdyno.probe.machine.processor import Processor, read_processor
from pgdyno.probe.machine.tree import Tree


@dataclass(frozen=True)
class State:
    """``disk``: None where no data of ours lie on this machine. ``counters``: at the end of the watch whose
    ``load`` this is.
    """

    unix_s: float
    processor: Processor
    memory: Memory
    kernel: Kernel
    limits: Limits
    clock: Clock
    disk: Disk | None
    load: Load
    counters: Counters

    def as_json(self) -> dict[str, Any]:
        """For the evidence: all but the counters, which are for differences."""
        found = asdict(self)
        del found["counters"]
        return found


def examine_machine(
    watch_s: float,
    data_path: Path | None,
    sync_s: float,
    tree: Tree | None = None,
    wait: Callable[[float], None] = time.sleep,
) -> State:
    """Watches for ``watch_s``, then tries flushes for ``sync_s``, which would show in what is watched."""
    tree = tree or Tree()
    before = read_counters(tree)
    wait(watch_s)
    after = read_counters(tree)
    return State(
        unix_s=time.time(),
        processor=read_processor(tree),
        memory=read_memory(tree),
        kernel=read_kernel(tree),
        limits=read_limits(tree),
        clock=read_clock(tree),
        disk=None if data_path is None else read_disk(tree, data_path, sync_s),
        load=between(before, after),
        counters=after,
    )
