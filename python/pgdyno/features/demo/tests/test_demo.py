"""The crash test of the demo: power cuts where the machine allows them, else crashes of the servers."""

import pytest

from example_studies import make_study
from pgdyno.errors import UsageError
from pgdyno.features.crash import run
from pgdyno.features.crash_disk.plan import CrashKind, CrashPlan
from pgdyno.features.demo.command import DEMO_CUTS, crash_options


@pytest.mark.parametrize(("missing", "kind"), [("", CrashKind.POWER), ("/dev/fuse", CrashKind.SERVER)])
def test_servers_are_killed_where_the_power_cannot_be_cut(
    monkeypatch: pytest.MonkeyPatch, missing: str, kind: CrashKind
) -> None:
    def require_possible(plan: CrashPlan) -> None:
        if plan.kind is CrashKind.POWER and missing:
            raise UsageError(f"lacks {missing}")

    monkeypatch.setattr(run, "require_possible", require_possible)
    crashes, reason = crash_options(make_study())
    crashes.check(lambda: [make_study()])
    assert (crashes.KIND, crashes.cuts, crashes.follow_up) == (kind, DEMO_CUTS, "crash test")
    assert missing in reason and bool(reason) == bool(missing)
    assert crashes.on_resume() == ([] if missing else ["--durability", "--cuts", str(DEMO_CUTS)])
