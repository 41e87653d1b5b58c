"""Features: their commands, and their hooks in the core, as names of objects.

The core never imports this module. A registry (``hooks.Hooks``) in the package that loops over a kind of hook
has the name of the field here, and the class of the objects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

Names = Sequence[str]
"""Objects as ``module:name``: a name in a module of the feature's package; without a colon, a file there.

They are names, so that a command imports only the hooks that it uses. A test resolves all of them.
"""


class Feature(NamedTuple):
    """A feature. The order of features has no effect.

    ``requires``: the other features that it imports. A program without them must not have it either.
    ``commands``: module and line of help by name. The module has a function of that name, or an ``app`` with
    subcommands. ``public``: objects of the package ``pgdyno`` itself, its Python API.
    """

    package: str
    requires: Names = ()
    public: Names = ()
    commands: Mapping[str, tuple[str, str]] = {}
    study_tables: Names = ()
    study_errors: Names = ()
    parameters: Names = ()
    workloads: Names = ()
    workload_options: Names = ()
    servers: Names = ()
    running_servers: Names = ()
    leftovers: Names = ()
    disks: Names = ()
    data: Names = ()
    prepare: Names = ()
    examinations: Names = ()
    session: Names = ()
    repetitions: Names = ()
    before_drive: Names = ()
    noise: Names = ()
    search_time: Names = ()
    options: Names = ()
    defaults: Names = ()
    probes: Names = ()
    arm_requests: Names = ()
    io_clocks: Names = ()
    trial_checks: Names = ()
    caveats: Names = ()
    findings: Names = ()
    timeline_marks: Names = ()
    trial_values: Names = ()
    case_results: Names = ()
    series_results: Names = ()
    results: Names = ()
    judgements: Names = ()
    sections: Names = ()
    case_sections: Names = ()
    reports: Names = ()
    documents: Names = ()
    pages: Names = ()
    routes: Names = ()
