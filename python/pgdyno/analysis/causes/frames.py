"""The profiles of two arms as one tree of frames, with what differs in each beyond the blocks' noise.

A frame is a function as called by those above it. Its time is with all that it called.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from pgdyno.analysis.comparison.verdict import BLOCKS_MIN
from pgdyno.analysis.statistics.effect import holm_confidences, student
from pgdyno.analysis.telemetry.profile import Profile

Pair = tuple[Profile, Profile]
"""Of the baseline and of the arm, in one block."""

SHARE_MIN = 0.001
"""Of all time: a smaller frame could not be pointed at, and is left out with all above it."""


@dataclass(frozen=True)
class Frame:
    """``baseline_us`` and ``arm_us``: CPU per transaction, means over the blocks. ``differs``: whether the
    difference is beyond noise, Student's t over the blocks, corrected after Holm over all frames; never with
    too few blocks for a verdict. ``within``: what it called, by name.
    """

    name: str
    baseline_us: float
    arm_us: float
    differs: bool
    within: Sequence[Frame]

    @property
    def mean_us(self) -> float:
        """Of both arms: adds up over the frames within, but for the function's own time."""
        return (self.baseline_us + self.arm_us) / 2

    @property
    def change_us(self) -> float:
        """More than zero: the arm takes more."""
        return self.arm_us - self.baseline_us


@dataclass
class _Node:
    """While it is put together. ``by_block``: shape (blocks, 2), of frames that are kept."""

    us: float = 0.0
    within: dict[str, _Node] = field(default_factory=dict)
    by_block: npt.NDArray[np.float64] | None = None


def frames_of(pairs: Sequence[Pair], confidence: float) -> Frame:
    """The root, of everything."""
    root = _Node()
    for pair in pairs:
        for profile in pair:
            _add(root, profile.us_per_tx)
    kept = list(_kept(root, SHARE_MIN * root.us))
    for node in kept:
        node.by_block = np.zeros((len(pairs), 2))
    for block, pair in enumerate(pairs):
        for arm, profile in enumerate(pair):
            _add_block(root, profile.us_per_tx, (block, arm))
    return _frame("all", root, _that_differ(kept, confidence))


def _add(root: _Node, stacks: Mapping[tuple[str, ...], float]) -> None:
    for stack, us in stacks.items():
        node = root
        node.us += us
        for name in stack:
            node = node.within.setdefault(name, _Node())
            node.us += us


def _kept(node: _Node, us_min: float) -> Iterator[_Node]:
    """Those that are large enough; the others are taken out of the tree."""
    yield node
    node.within = {name: inner for name, inner in sorted(node.within.items()) if inner.us >= us_min}
    for inner in node.within.values():
        yield from _kept(inner, us_min)


def _add_block(root: _Node, stacks: Mapping[tuple[str, ...], float], place: tuple[int, int]) -> None:
    for stack, us in stacks.items():
        node: _Node | None = root
        for name in (None, *stack):
            node = node if name is None or node is None else node.within.get(name)
            if node is None or node.by_block is None:
                break
            node.by_block[place] += us


def _that_differ(kept: Sequence[_Node], confidence: float) -> set[int]:
    """By ``id``. Frames with the very same differences, as a function and its only caller, are one test."""
    by_difference: dict[bytes, list[_Node]] = {}
    for node in kept:
        assert node.by_block is not None
        d = node.by_block[:, 1] - node.by_block[:, 0]
        by_difference.setdefault(np.round(d, 9).tobytes(), []).append(node)
    differences = [np.frombuffer(key) for key in by_difference]
    if not differences or len(differences[0]) < BLOCKS_MIN:
        return set()
    p_values = [student(list(d), confidence).p_value for d in differences]
    found: set[int] = set()
    levels = holm_confidences(p_values, confidence)
    for nodes, p_value, level in zip(by_difference.values(), p_values, levels, strict=True):
        if p_value is not None and p_value < 1 - level:
            found |= {id(node) for node in nodes}
    return found


def _frame(name: str, node: _Node, differing: set[int]) -> Frame:
    assert node.by_block is not None
    a, b = node.by_block.mean(axis=0)
    within = [_frame(inner, of, differing) for inner, of in node.within.items()]
    return Frame(name, float(a), float(b), id(node) in differing, within)
