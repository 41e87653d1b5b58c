"""Default values of a study that do not depend on the machine. ``sizing.py`` has those that do.

The command line, study files and the model of a study share them. The default probes are in
``probe_names.py``, and the defaults of a workload in its parameters (``*_parameters.py``).
"""

from __future__ import annotations

MARGIN = 0.02
"""Equivalence margin, as a share."""

CONFIDENCE = 0.95
"""Confidence level of the intervals."""

BUDGET_MIN = 5.0
"""Time budget of ``pgdyno compare``, in minutes."""

FIT_MIN = 10.0
"""Time budget of ``pgdyno study plan --fit``, in minutes."""

SLICE_S = 0.5
"""Length of a slice: short compared with drift of the machine, long compared with a transaction. With many
clients per core it is longer (``sizing.default_slice_s``)."""

WINDOW_S = 10.0
"""Measured time per arm and block, if the arms take turns in slices or run at the same time. Many short
blocks give more information than few long ones, and a verdict needs five. Restarts take too large a share of
shorter blocks."""

WHOLE_WINDOW_S = 60.0
"""Length of a window with the schedules blocks and sequential, which are for effects that take minutes."""

DISCARD_S = 0.05
"""Discarded start of a measured slice, in which the clients are still synchronized."""

RETRIES_MAX = 10
"""Maximum number of retries per transaction after a serialization failure or deadlock."""

CUTS = 30
"""Number of crashes per arm of a crash test: none with a loss means a probability below 10%."""

CUTS_MAX = 10_000
