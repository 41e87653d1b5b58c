"""Changes in the results of a repeated study."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature(
    __name__,
    requires=("gates", "hosts"),
    commands={
        "history": (
            "command",
            "Find when the results of a repeated study changed, and what changed with them.",
        )
    },
    documents=("report:HistoryDocument",),
)
