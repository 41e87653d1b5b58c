"""A bisection of a planted regression, with real servers.

The "builds" are wrappers of the installed server. A file of the repository adds settings to its command line.
From the planted commit on, each transaction waits 100 ms before its flush (commit_delay without siblings).
The wrapper contains the hash, so that each build has its own identity and dataset, as real builds do.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from program import Program

from fake_sources import git
from pgdyno.features.bisect.run import WORKTREE

BUILD = """\
#!/bin/sh
set -e
test ! -f broken || { echo "error: it does not compile"; exit 2; }
mkdir "$PGDYNO_PREFIX/bin"
for program in initdb pg_controldata pg_config; do
    test ! -x "$BIN/$program" || printf '#!/bin/sh\\nexec %s/%s "$@"\\n' "$BIN" "$program" \
        > "$PGDYNO_PREFIX/bin/$program"
done
printf '#!/bin/sh\\n# %s\\nexec %s/postgres "$@" %s\\n' "$PGDYNO_COMMIT" "$BIN" "$(cat options)" \
    > "$PGDYNO_PREFIX/bin/postgres"
chmod 755 "$PGDYNO_PREFIX"/bin/*
"""
SLOW = "-c commit_delay=100000 -c commit_siblings=0"
PLANTED, BROKEN = 3, 2


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Commits v0 … v4; v3 plants the regression, and v2 does not build."""
    path = tmp_path / "repository"
    path.mkdir()
    git(path, "init", "-q")
    (path / "build.sh").write_text(BUILD)
    for number in range(5):
        (path / "options").write_text(SLOW if number >= PLANTED else "")
        (path / "broken").unlink(missing_ok=True)
        if number == BROKEN:
            (path / "broken").touch()
        git(path, "add", "-A")
        git(path, "commit", "-qm", f"commit {number}", "--allow-empty")
        git(path, "tag", f"v{number}")
    return path


@pytest.mark.long
def test_a_planted_regression_is_found_without_the_commit_that_does_not_build(
    program: Program, repository: Path, server: str
) -> None:
    sizes = ("--workload", "pgbench", "--scale", "1", "-b", "simple-update", "--clients", "2", "--seed", "7")
    times = ("--schedule", "slices", "--slice", "0.2s", "--warmup", "0.2s", "--window", "0.4s")
    ended = program.run(
        *("bisect", "v0", "v4", "--repository", repository, "--directory", "d", "--json"),
        *("--build-script", f"BIN={server} sh ./build.sh", "--margin", "50%", *sizes, *times),
    )
    found = ended.json()
    # Between v1, the last good one, and v3 is the broken one: the range is all that can be known.
    assert [one["subject"] for one in found["range"]] == ["commit 1", "commit 3"], ended.err
    assert ended.status == 4 and found["found"] is None and found["direction"] == "slower"
    skipped = [step for step in found["steps"] if step["outcome"] == "skipped"]
    assert [step["subject"] for step in skipped] == ["commit 2"]
    assert "error: it does not compile" in skipped[0]["reason"]
    assert found["ends"]["effect"]["high"] < 0 and found["wrong_step_probability_max"] < 0.0501
    # A script that repairs the commit finds the planted one.
    again = program.run(
        *("bisect", "v1", "v3", "--repository", repository, "--directory", "e", "--json"),
        *("--build-script", f"rm -f broken; BIN={server} sh ./build.sh", "--margin", "50%"),
        *(*sizes, *times),
    )
    found = again.json()
    assert again.status == 0, again.err
    assert found["found"]["subject"] == "commit 3" and found["confirmation"]["result"] == "confirmed"
    assert found["confirmation"]["effect"]["high"] < 0
    assert (program.folder / "e" / "confirmation.html").is_file()
    assert not (program.folder / "e" / WORKTREE).exists()
