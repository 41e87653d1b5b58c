"""Whether every arm's server starts with its settings: tried once on an empty cluster, before the load.

The catalogue knows the range of each setting, the server alone knows what settings do to each other, what its
libraries say, and whether the machine has the memory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from pgdyno.errors import ServerError, StartError
from pgdyno.interruption import Interruption
from pgdyno.lab.dataset import init_options
from pgdyno.lab.progress import Step, Watch
from pgdyno.lab.wanted import Wanted
from pgdyno.server.build import Build
from pgdyno.server.cache import Cache
from pgdyno.server.cluster import Cluster, InitOptions
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
    tried = set()
    with contextlib.ExitStack() as stack:
        clusters = _EmptyClusters(cache, stack)
        for study, wanted in asked:
            init = replace(init_options(study), sync=False)
            for arm in wanted.values():
                settings = arm.requested.settings
                what = (arm.build.build_id, init, frozenset(settings.items()), arm.requested.optional)
                if not settings or what in tried:
                    continue
                tried.add(what)
                interruption.check()
                watch(Step(f"try the settings of {arm.spec.name}"))
                _try(clusters.of(arm.build, init), arm)


def _try(cluster: Cluster, arm: Wanted) -> None:
    try:
        with cluster.start(arm.requested.settings, optional=arm.requested.optional):
            pass
    except ServerError as error:
        raise StartError(f"{arm.spec.name}: {error}") from error


@dataclass
class _EmptyClusters:
    """One of each build, made when it is first wanted; they are gone when the stack is left."""

    cache: Cache
    stack: contextlib.ExitStack
    made: dict[tuple[str, InitOptions], Cluster] = field(default_factory=dict)

    def of(self, build: Build, init: InitOptions) -> Cluster:
        place = (build.build_id, init)
        if place not in self.made:
            run = self.stack.enter_context(self.cache.run_room().open("try"))
            cluster = Cluster(build, run.data_dir, self.cache.account, run.log_path)
            cluster.initdb(init)
            self.made[place] = cluster
        return self.made[place]
