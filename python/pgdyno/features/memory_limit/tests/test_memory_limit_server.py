"""A study of real servers with a memory limit."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from small_study import run_small, small_study

from pgdyno.cli.report import read_report
from pgdyno.errors import UsageError
from pgdyno.features.memory_limit.groups import PREFIX, usable_parent, version_of
from pgdyno.measure.progress import Progress
from pgdyno.report.markdown_format import to_markdown
from pgdyno.results.reader import Evidence
from pgdyno.results.records import TrialStatus
from pgdyno.server.builds import Build

pytestmark = [pytest.mark.server, pytest.mark.usefixtures("cache_of_studies")]

LIMIT_BYTES = 512 << 20

PF_EXITING = 4
"""Flag in /proc/PID/stat of a process that ends, and may have left its group already."""


@pytest.fixture
def parent() -> Path:
    try:
        return usable_parent(LIMIT_BYTES)
    except UsageError as error:
        pytest.skip(f"needs permission to make control groups: {error}")


@pytest.mark.parametrize("schedule", ["slices", "blocks"])
def test_all_processes_of_each_server_are_in_a_group_of_their_own(
    build: Build, parent: Path, tmp_path: Path, schedule: str
) -> None:
    seen: dict[str, set[str]] = {}

    def watch(_: Progress) -> None:
        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.Error, OSError):
                if process.name() == "postgres" and "run-arm" in (where := process.cwd()):
                    groups = Path(f"/proc/{process.pid}/cgroup").read_text()
                    flags = int(Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[6])
                    if not flags & PF_EXITING:
                        seen.setdefault(where, set()).add(groups)

    arms = [str(build.bin_dir)] * 2
    blocks = 2 if schedule == "blocks" else 1
    study = small_study(arms, blocks_max=blocks, schedule=schedule, memory_limit_bytes=LIMIT_BYTES)
    path = tmp_path / "e.sqlite"
    run_small(path, study, watch)
    with Evidence(path) as evidence:
        assert [trial.status for trial in evidence.trials()] == [TrialStatus.OK] * 2 * blocks
        facts = [arm.server for arm in evidence.arms()]
    assert len(seen) == 2 and all(len(groups) == 1 for groups in seen.values())
    (first,), (second,) = seen.values()
    assert first != second and all(f"/{PREFIX}" in groups for groups in (first, second))
    assert list(parent.glob(f"{PREFIX}*")) == []
    assert {of["memory_limit_bytes"] for of in facts} == {LIMIT_BYTES}
    text = to_markdown(read_report(path)).replace("\\", "").partition("How it was measured")[2]
    limited = f"a control group (version {version_of(parent)}) with 512 MB of memory"
    assert limited in text.partition("#")[0]
