"""Tools with much output or input."""

from functools import partial

import pytest

from pgdyno.features.own_data.tools import feed_lines, tool_lines
from pgdyno.server.directories import OURSELVES
from pgdyno.server.processes import run_tool

TIMEOUT_S = 60.0
LINES = [f"{n}\n".encode() * 100 for n in range(1000)]


def test_all_lines_are_fed_and_yielded() -> None:
    feed = partial(feed_lines, LINES, lambda: None)
    assert run_tool(["/bin/cat"], OURSELVES, TIMEOUT_S, feed=feed).stdout.encode() == b"".join(LINES)
    found = tool_lines(["/usr/bin/seq", "3"], OURSELVES, TIMEOUT_S)
    assert list(found) == [b"1\n", b"2\n", b"3\n"]


def test_a_tool_may_end_before_its_input() -> None:
    feed = partial(feed_lines, LINES, lambda: None)
    assert run_tool(["/bin/true"], OURSELVES, TIMEOUT_S, feed=feed).returncode == 0


def test_a_tool_that_reads_nothing_can_be_interrupted() -> None:
    checks = iter([None] * 20)

    def check() -> None:
        if next(checks, check) is check:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_tool(["/bin/sleep", "600"], OURSELVES, TIMEOUT_S, feed=partial(feed_lines, LINES, check))
