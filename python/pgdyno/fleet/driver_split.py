"""Division of one drive among engines on several nodes. Pure.

The unit is the thread of the driver: its clients, their random numbers and its arrivals depend on its number
only, not on the engine that runs it (docs/reference/engine-protocol.md, ``part``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pgdyno.errors import UsageError
from pgdyno.study.sizing import MAX_THREADS


def default_threads(cores: int) -> int:
    """Return the default number of threads of an engine: one per two cores, as on one machine."""
    return max(1, -(-cores // 2))


def threads_by_node(threads: int | None, clients: int, cores: Sequence[int]) -> list[int]:
    """Return the number of threads of each node, in proportion to its cores.

    ``threads`` is the total; None: the sum of the defaults, but at most one per client. Raises UsageError if
    a node would have no thread, or more than an engine can have.
    """
    wanted = [default_threads(n) for n in cores]
    total = min(clients, sum(wanted)) if threads is None else threads
    if total < len(cores) or total > clients:
        raise UsageError(
            f"{len(cores)} load generators need at least {len(cores)} threads and as many clients "
            f"(got {total} threads and {clients} clients): use fewer drivers, or more clients"
        )
    shares = _apportion(total, wanted)
    if max(shares) > MAX_THREADS:
        raise UsageError(f"a load generator has at most {MAX_THREADS} threads (got {max(shares)}): add nodes")
    return shares


def _apportion(total: int, weights: Sequence[int]) -> list[int]:
    """Return shares of a total: at least 1 each, the others by largest remainder."""
    exact = [(total - len(weights)) * weight / sum(weights) for weight in weights]
    shares = [1 + int(share) for share in exact]
    by_rest = sorted(range(len(weights)), key=lambda i: int(exact[i]) - exact[i])
    for i in by_rest[: total - sum(shares)]:
        shares[i] += 1
    return shares


def split(specification: Mapping[str, Any], cores: Sequence[int]) -> list[dict[str, Any]]:
    """Return the specification of each engine, for nodes with so many cores. Raises UsageError.

    A single engine has no part: nothing is agreed before its slices, which costs time and messages.
    """
    targets = specification["targets"]
    clients = [target.get("clients") or specification["clients"] for target in targets]
    threads = {target.get("threads") or specification["threads"] for target in targets}
    if len(threads) > 1:
        raise UsageError("drivers on several nodes need the same number of threads for all arms")
    shares = threads_by_node(threads.pop(), min(clients), cores)
    common = {**specification, "threads": sum(shares), "targets": [_without_threads(one) for one in targets]}
    if len(shares) == 1:
        return [common]
    firsts = [sum(shares[:i]) for i in range(len(shares))]
    return [
        {**common, "part": {"first_thread": first, "threads": n}}
        for first, n in zip(firsts, shares, strict=True)
    ]


def _without_threads(target: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in target.items() if key != "threads"}
