"""The kernel's preemption model: when it may suspend a process that runs in the kernel."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pgdyno.probe.machine.tree import Tree

NONE_OR_VOLUNTARY = "none or voluntary"
"""A kernel without preemption whose configuration cannot be read: it is one of these."""

LAZY_SINCE = (6, 12)
"""From this version on a kernel that calls itself PREEMPT may be lazy."""

_MODELS = {"NONE": "none", "VOLUNTARY": "voluntary", "LAZY": "lazy", "": "full", "RT": "rt"}
_CONFIGURED = re.compile(r"^CONFIG_PREEMPT_?(NONE|VOLUNTARY|LAZY|RT|)=y$", re.MULTILINE)


@dataclass(frozen=True)
class Kernel:
    """``preemption``: none, voluntary, lazy, full or rt; None where the kernel does not tell."""

    release: str | None = None
    preemption: str | None = None


def read_kernel(tree: Tree) -> Kernel:
    """Read it as it is now. Only root sees the debug file; the others tell how the kernel was booted."""
    release = tree.text("/proc/sys/kernel/osrelease")
    config = tree.gzipped("/proc/config.gz") or tree.text(f"/boot/config-{release}")
    return Kernel(
        release=release,
        preemption=preemption(
            debug=tree.text("/sys/kernel/debug/sched/preempt"),
            version=tree.text("/proc/sys/kernel/version"),
            command_line=tree.text("/proc/cmdline"),
            config=config,
            release=release,
        ),
    )


def preemption(
    *,
    debug: str | None,
    version: str | None,
    command_line: str | None,
    config: str | None,
    release: str | None,
) -> str | None:
    """Return the model: what the kernel says now, else how it was booted, else how it was built."""
    if now := re.search(r"\((\w+)\)", debug or ""):
        return now[1]
    words = (version or "").split()
    if "PREEMPT_RT" in words:
        return "rt"
    booted = re.findall(r"(?:^|\s)preempt=(none|voluntary|lazy|full)(?=\s|$)", command_line or "")
    if "PREEMPT_DYNAMIC" in words and booted:
        return str(booted[-1])
    configured = [_MODELS[name] for name in _CONFIGURED.findall(config or "")]
    if configured:
        return "rt" if "rt" in configured else configured[0]
    if "PREEMPT" in words:
        number = re.match(r"(\d+)\.(\d+)", release or "")
        is_older = number is not None and (int(number[1]), int(number[2])) < LAZY_SINCE
        return "full" if is_older else None
    return None if not words or "PREEMPT_DYNAMIC" in words else NONE_OR_VOLUNTARY
