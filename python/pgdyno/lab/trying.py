"""Whether every arm's server starts with its settings: tried once on an empty cluster, before the load.

The catalogue knows the range of each setting, the server alone knows what settings do to each other, what its
libraries say, and whether the machine has the memory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping

from pgdyno.errors import ServerError, StartError
from pgdyno.interruption import Interruption
from pgdyno.lab.dataset import init_options
from pgdyno.lab.progress import Step, Watch
from pgdyno.lab.wanted import Wanted
from pgdyno.server.cache import Cache
from pgdyno.server.cluster import Cluster
from pgdyno.server.empty import empty_cluster
from pgdyno.study.plan import Study


def require_starts(
    asked: Iterable[tuple[Study, Mapping[int, Wanted]]],
    cache: Cache,
    watch: Watch,
    interruption: Interruption,
) -> None:
    """Each set of settings once on each build; none where nothing is set: so the catalogue was read already.

    Raises StartError, which names the arm and has the server's own words, and Interrupted.
    """
    tried, empty = set(), {}
    with contextlib.ExitStack() as stack:
        for study, wanted in asked:
            init = init_options(study)
            for arm in wanted.values():
                settings = arm.requested.settings
                where = (arm.build.build_id, init)
                what = (where, frozenset(settings.items()), arm.requested.optional)
                if not settings or what in tried:
                    continue
                tried.add(what)
                interruption.check()
                watch(Step(f"try the settings of {arm.spec.name}"))
                if where not in empty:
                    empty[where] = stack.enter_context(empty_cluster(arm.build, cache, "try", init))
                _try(empty[where], arm)


def _try(cluster: Cluster, arm: Wanted) -> None:
    try:
        with cluster.start(arm.requested.settings, optional=arm.requested.optional):
            pass
    except ServerError as error:
        raise StartError(f"{arm.spec.name}: {error}") from error
