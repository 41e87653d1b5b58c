"""A study that a page stops, and continues: pages of ``pgdyno serve`` with a real server."""

from __future__ import annotations

from pathlib import Path

import pytest
from program import COUNTED, END_S, PGBENCH, Program, begun
from starlette.testclient import TestClient

from pgdyno.features.serve.access import Guard
from pgdyno.features.serve.control import routes
from pgdyno.features.serve.index import Index, identifier
from pgdyno.features.serve.pages import application
from pgdyno.features.serve.studies import Studies, end_of_log, log_of
from pgdyno.results.reader import Evidence
from pgdyno.results.records import BlockStatus, StudyEnd

HOST = "http://127.0.0.1:8123"
BLOCKS = 4


def ended(path: Path) -> tuple[StudyEnd | None, list[BlockStatus]]:
    with Evidence(path) as evidence:
        return evidence.study().ended_because, [block.status for block in evidence.blocks()]


def test_a_study_is_stopped_between_blocks_and_continued_from_its_page(
    program: Program, server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in program.environment().items():
        monkeypatch.setenv(name, value)
    path, index = tmp_path / "e.sqlite", Index(tmp_path)
    studies, live = Studies(index), f"/live/{identifier(tmp_path, path)}"
    pages = Guard(application(index, routes(index, studies)), "token", 8123)
    client = TestClient(pages, base_url=HOST, headers={"origin": HOST}, follow_redirects=False)
    client.get("/?token=token")
    options = (*PGBENCH, *COUNTED, "--clients", "1", "--blocks", str(BLOCKS))
    running = program.start("compare", server, server, *options, "--evidence", path)
    running.until(lambda: path.exists() and begun(path, 1))
    assert client.post(f"{live}/stop").status_code == 303
    stopped = running.ended()
    assert stopped.status == 130 and "to continue: pgdyno compare --resume" in stopped.err
    end, blocks = ended(path)
    assert end is StudyEnd.INTERRUPTED and 1 <= blocks.count(BlockStatus.DONE) < BLOCKS
    assert not list(tmp_path.glob("e.sqlite.*"))
    assert ">stopped</span>" in client.get(live).text
    assert client.post(f"{live}/continue").headers["location"] == live
    assert studies._started[path].process.wait(END_S) == 0, end_of_log(path)
    assert ended(path) == (StudyEnd.BLOCKS, [BlockStatus.DONE] * BLOCKS)
    assert log_of(path).read_text().startswith(f"$ pgdyno compare --resume {path}\n")
