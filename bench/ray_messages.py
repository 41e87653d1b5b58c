"""CPU time that messages of Ray cost in this process, with actors on a cluster of this machine."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

ACTORS, MESSAGES = 4, 800


@contextlib.contextmanager
def ray_actors(of: type, threads: int = 1) -> Iterator[tuple[Any, list[Any]]]:
    """Start a cluster with ACTORS actors, which serve as many calls at once. Yield Ray and the actors."""
    import ray  # noqa: PLC0415 - the optional dependency

    # Without a token in the environment, Ray would write one to the home directory of the user.
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))  # Ray keeps the first one of a process
    ray.init("local", num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    try:
        remote: Any = ray.remote(of)
        yield ray, [remote.options(num_cpus=0, max_concurrency=threads).remote() for _ in range(ACTORS)]
    finally:
        ray.shutdown()


def us_per_message(ray: Any, actors: list[Any], call: Callable[[Any, int], Any]) -> float:
    """Return the CPU time of a call and its answer in µs, if messages follow each other at once.

    ``call`` starts the call of an actor, with its number.
    """
    ray.get([call(actor, 0) for actor in actors])
    begun_s = time.process_time()
    for number in range(MESSAGES // ACTORS):
        ray.get([call(actor, number) for actor in actors])
    return 1e6 * (time.process_time() - begun_s) / MESSAGES


def share_of_waiting(
    ray: Any, actors: list[Any], nodes: int, period_s: float, call: Callable[[Any], Any]
) -> float:
    """Return the CPU time per second if a thread per node waits for answers.

    An answer takes ``period_s``. The CPU time includes that of an idle connection.
    """
    is_over = threading.Event()

    def wait(node: int) -> None:
        is_over.wait(period_s * node / nodes)
        while not is_over.is_set():
            ray.get(call(actors[node % ACTORS]), timeout=60.0)

    threads = [threading.Thread(target=wait, args=(node,), daemon=True) for node in range(nodes)]
    for thread in threads:
        thread.start()
    time.sleep(1.5 * period_s)
    begun_s, cpu_s = time.monotonic(), time.process_time()
    time.sleep(max(10.0, 2 * period_s))
    share = (time.process_time() - cpu_s) / (time.monotonic() - begun_s)
    is_over.set()
    for thread in threads:
        thread.join()
    return share
