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
from pgdyno.server.build_catalogue import empty_cluster
from pgdyno.server.cache_directory import Cache
from pgdyno.server.cluster import Cluster
from pgdyno.study.plan import Study


def require_starts(
    asked: Iterable[tuple[Study, Mapping[int, Wanted]]],
    cache: Cache,
    watch: Watch,
    interruption: Interruption,
) -> list[dict[int, Mapping[str, str]]]:
    """Each set of settings once on each build; none where nothing is set: so the catalogue was read already.

    Returns for each study, by arm, all settings in effect as ``SHOW`` spells them. Raises StartError, which
    names the arm and has the server's own words, and Interrupted.
    """
    tried: dict[object, Mapping[str, str]] = {}
    empty: dict[object, Cluster] = {}
    in_effect: list[dict[int, Mapping[str, str]]] = []
    with contextlib.ExitStack() as stack:
        for study, wanted in asked:
            init = init_options(study)
            in_effect.append({})
            for index, arm in wanted.items():
                settings = arm.requested.settings
                where = (arm.build.build_id, init)
                what = (where, frozenset(settings.items()), arm.requested.optional)
                if not settings:
                    in_effect[-1][index] = arm.catalogue.initial
                    continue
                if what not in tried:
                    interruption.check()
                    watch(Step(f"testing the settings of {arm.spec.name}"))
                    if where not in empty:
                        empty[where] = stack.enter_context(empty_cluster(arm.build, cache, "try", init))
                    tried[what] = _try(empty[where], arm)
                in_effect[-1][index] = tried[what]
    return in_effect


def _try(cluster: Cluster, arm: Wanted) -> Mapping[str, str]:
    try:
        with cluster.start(arm.requested.settings, optional=arm.requested.optional) as server:
            return dict(server.effective)
    except ServerError as error:
        raise StartError(f"{arm.spec.name}: {error}") from error
