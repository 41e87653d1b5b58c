"""Whether the clients fit into the servers' connections: said of all arms, before anything is loaded."""

from __future__ import annotations

from collections.abc import Mapping

from pgdyno.errors import UsageError
from pgdyno.lab.wanted import Wanted
from pgdyno.server.dsn import Dsn
from pgdyno.server.remote import Remote, connections_max
from pgdyno.study.plan import Study

OURS = 2
"""Of each arm beside its clients: one that is held idle through the trial, and the sampler's or, before and
after it, one for what is read around the window."""


def require_connections(study: Study, wanted: Mapping[int, Wanted]) -> None:
    """Raises UsageError, which names every arm whose server has too few, and ConnectError."""
    few = {**_of_builds(study, wanted), **_of_running_servers(study)}
    if not few:
        return
    least = max(needed for needed, _ in few.values())
    shown = ", ".join(f"{study.arms[index].name} ({most})" for index, (_, most) in sorted(few.items()))
    raise UsageError(
        f"--clients: with pgdyno's own {least} connections are needed, more than the server takes of "
        f"{shown}: set max_connections to {least} or more there, or take fewer clients"
    )


def _of_builds(study: Study, wanted: Mapping[int, Wanted]) -> dict[int, tuple[int, int]]:
    """By arm: what is needed, and what the server will have. Our clients are superusers there, for whom some
    are reserved: they may have all of them.
    """
    found = {}
    for index, arm in wanted.items():
        text = arm.requested.settings.get("max_connections", arm.catalogue.initial["max_connections"])
        most = int(arm.catalogue.definitions["max_connections"].parse(text, arm.build.version))
        needed = study.driving(index).clients + OURS
        if needed > most:
            found[index] = (needed, most)
    return found


def _of_running_servers(study: Study) -> dict[int, tuple[int, int]]:
    """As they say. Arms on one server share what it has where they take turns: all clients stay connected."""
    most: dict[int, int] = {}
    on: dict[object, list[int]] = {}
    for index, spec in enumerate(study.arms):
        if spec.is_dsn:
            remote = Remote(Dsn(spec.server))
            with remote.connect() as connection:
                most[index] = connections_max(connection)
            on.setdefault(remote.identity()[0] if study.is_together else index, []).append(index)
    needed = {
        index: sum(study.driving(one).clients + OURS for one in sharing)
        for sharing in on.values()
        for index in sharing
    }
    return {index: (needed[index], most[index]) for index in most if needed[index] > most[index]}
