"""Data of the user: databases, dumps, backups, and scripts that draw from their columns."""

from __future__ import annotations

from pgdyno.feature import Feature


def feature() -> Feature:
    """Return the hooks."""
    from pgdyno.features.own_data import checks, loading, preflight, source
    from pgdyno.measure.dataset_loading import DataKind
    from pgdyno.measure.prepare import Preparation
    from pgdyno.server.cache_directory import Leftovers

    return Feature(
        "own_data",
        data=(DataKind(loading.is_loaded_here, loading.key, loading.make),),
        prepare=(
            Preparation(
                preflight.with_own_data,
                preflight.with_tested_data,
                preflight.own_data_caveats,
                checks.redaction,
            ),
        ),
        trial_checks=(checks.check_after_trial,),
        leftovers=(Leftovers("data", source.unfinished, source.sweep),),
    )
