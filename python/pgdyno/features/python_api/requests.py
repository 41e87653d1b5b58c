"""Arms and workloads as Python objects, and their words on the command line.

The API has no validation of its own: a study is the command line ``pgdyno compare``, which the results file
names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike, fspath
from typing import Any, ClassVar

Value = str | int | float | bool | PathLike[str]
"""Value of a setting or an option."""

_PLAIN = re.compile(r"[\w.+/:%-]*")
"""Values of settings without quotes."""


@dataclass(frozen=True, init=False)
class Arm:
    """A server with its settings: ``Arm("18", random_page_cost=1.1)``, ``Arm("18", "@starter", name="t")``.

    ``server``: a version, a directory, ``system``, ``git:REF`` or a DSN. ``profiles``: ``@PROFILE`` or
    ``@FILE``. ``name``: that in reports. ``settings`` by name, as values of Python or as text with a unit.
    """

    server: str
    profiles: tuple[str, ...]
    name: str
    settings: Mapping[str, Value]

    def __init__(
        self, server: str | PathLike[str], *profiles: str, name: str = "", **settings: Value
    ) -> None:
        object.__setattr__(self, "server", fspath(server))
        object.__setattr__(self, "profiles", profiles)
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "settings", settings)

    def __str__(self) -> str:
        """Return the argument ARM of the command line."""
        parts = [self.server, *self.profiles]
        parts += [f"{name.replace('__', '.')}={_setting(value)}" for name, value in self.settings.items()]
        return f"{f'{self.name}=' if self.name else ''}{','.join(parts)}"


def _setting(value: Value) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    text = fspath(value) if isinstance(value, PathLike) else str(value)
    return text if _PLAIN.fullmatch(text) else "'" + text.replace("'", "''") + "'"


@dataclass(frozen=True, init=False)
class Workload:
    """A workload by name with its options, as on the command line: ``Workload("tpcc", warehouses=10)``.

    A list repeats an option. ``coverage``: share of the recorded time that the scripts have, 0..1, if they
    were made of statements.
    """

    KIND: ClassVar[str] = ""

    kind: str
    options: Mapping[str, Any]
    coverage: float | None = field(default=None, compare=False)

    def __init__(self, kind: str = "", *, coverage: float | None = None, **options: Any) -> None:
        object.__setattr__(self, "kind", kind or self.KIND)
        object.__setattr__(self, "options", options)
        object.__setattr__(self, "coverage", coverage)

    @classmethod
    def from_statements(
        cls, dsn: str, directory: str | PathLike[str] = "workload", **options: Any
    ) -> Workload:
        """Return the statements that a database has recorded, as scripts in a new directory.

        ``options`` of ``pgdyno workload from-statements``: ``log``, ``limit``, ``overwrite``, …
        Raises PgdynoError.
        """
        from pgdyno.features.python_api.process import document_of  # noqa: PLC0415

        asked = ["workload", "from-statements", dsn, "--output", fspath(directory), *option_words(options)]
        found = document_of(asked)
        return Workload("pgbench", file=[fspath(directory)], coverage=found["coverage"])

    def words(self) -> list[str]:
        """Return the options of the command line."""
        return ["--workload", self.kind, *option_words(self.options)]


class Tpcc(Workload):
    """The workload tpcc: ``Tpcc(warehouses=10)``."""

    KIND = "tpcc"


class Pgbench(Workload):
    """The workload pgbench: ``Pgbench(scale=50, builtin=["select-only"])``, ``Pgbench(file="own.sql")``."""

    KIND = "pgbench"


class Sysbench(Workload):
    """The workload sysbench: ``Sysbench(script="oltp_read_only", tables=8)``."""

    KIND = "sysbench"


class LinkBench(Workload):
    """The workload linkbench: ``LinkBench(nodes=100_000)``."""

    KIND = "linkbench"


def option_words(options: Mapping[str, Any]) -> list[str]:
    """Return options with their values: ``fail_if="slower"`` is ``--fail-if slower``.

    True is an option without a value; False and None are none.
    """
    return [word for name, value in options.items() for word in _words(name, value)]


def _words(name: str, value: Any) -> Iterator[str]:
    option = f"--{name.strip('_').replace('_', '-')}"
    values: Iterable[Any] = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    for one in values:
        if one is True:
            yield option
        elif one is not None and one is not False:
            yield from (option, fspath(one) if isinstance(one, PathLike) else str(one))
