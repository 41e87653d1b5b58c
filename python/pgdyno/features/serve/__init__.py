"""Pages in a browser: the results files of a directory, their reports, and studies while they run."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature(
    __name__,
    requires=("history", "python_api", "side_by_side"),
    options=("options:WebOptions",),
    before_drive=("stop:before_drive",),
    repetitions=("stop:after_block",),
    commands={"serve": ("command", "Show results files in a browser, and follow running studies.")},
)
