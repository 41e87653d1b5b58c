"""The demo: power cuts where the machine allows them, else crashes of the servers; its live page."""

from pathlib import Path

import pytest

from example_studies import make_study
from pgdyno.cli.options import Added
from pgdyno.errors import UsageError
from pgdyno.features.crash import run
from pgdyno.features.crash_disk.plan import CrashKind, CrashPlan
from pgdyno.features.demo import command
from pgdyno.features.demo.command import DEMO_CUTS, crash_options
from pgdyno.features.serve.options import WebOptions


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


def test_the_demo_has_a_live_page_if_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found: list[Added] = []
    monkeypatch.setattr(command, "choose_arms", lambda: ["17", "18"])
    monkeypatch.setattr(command, "run_and_report", lambda *_, added, **__: found.append(added) or 0)
    for web in (False, True):
        assert command.demo(tmp_path / "demo", web=web) == 0
    assert [added.of(WebOptions).web for added in found] == [False, True]
