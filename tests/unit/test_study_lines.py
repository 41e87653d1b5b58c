"""Every key and element of a TOML text has its line."""

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgdyno.study.study_file_reader import Path, line_of, lines_of

TEXT = '''# a comment = [
title = "no # comment, no [table]"
about = """
several = lines
"""
a.b."c d" = 1

[factors]
clients = [
  1, # one
  2,
  "a,]", 3.5]
inline = {x = 1, y = [{z = 2},
  {z = 3}]}
[factors.settings.tuned]
"pg.x" = 'a"b'
when = 2020-01-01 07:00:00
[[exclude]]
a = 1
[[exclude]]
a = 2
[[published.tables]]
title = "first"
[[published.tables.rows]]
cells = [1,

  {value = 2}]
[[published.tables]]
[[published.tables.rows]]
cells = []
[published.tables.rows.levels]
x = 1
'''

PLACES: dict[Path, int] = {
    ("title",): 2,
    ("about",): 3,
    ("a", "b", "c d"): 6,
    ("factors",): 8,
    ("factors", "clients"): 9,
    ("factors", "clients", 0): 10,
    ("factors", "clients", 1): 11,
    ("factors", "clients", 2): 12,
    ("factors", "clients", 3): 12,
    ("factors", "inline", "x"): 13,
    ("factors", "inline", "y", 0, "z"): 13,
    ("factors", "inline", "y", 1, "z"): 14,
    ("factors", "settings", "tuned"): 15,
    ("factors", "settings", "tuned", "pg.x"): 16,
    ("factors", "settings", "tuned", "when"): 17,
    ("exclude", 0, "a"): 19,
    ("exclude", 1): 20,
    ("exclude", 1, "a"): 21,
    ("published", "tables", 0, "rows", 0, "cells", 0): 25,
    ("published", "tables", 0, "rows", 0, "cells", 1): 27,
    ("published", "tables", 0, "rows", 0, "cells", 1, "value"): 27,
    ("published", "tables", 1): 28,
    ("published", "tables", 1, "rows", 0, "cells"): 30,
    ("published", "tables", 1, "rows", 0, "levels", "x"): 32,
}


@pytest.mark.parametrize("path", PLACES, ids=str)
def test_a_key_is_found_in_its_line(path: Path) -> None:
    assert lines_of(TEXT)[path] == PLACES[path]


def every_path(value: Any, path: Path = ()) -> list[Path]:
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(deeper for key, one in pairs for deeper in every_path(one, (*path, key)))]


def test_the_paths_are_those_that_the_parser_finds_and_no_others() -> None:
    assert set(lines_of(TEXT)) == set(every_path(tomllib.loads(TEXT))) - {()}


def test_the_parents_of_a_missing_path_are_searched() -> None:
    lines = lines_of(TEXT)
    assert line_of(lines, ("factors", "settings", "tuned", "missing")) == 15
    assert line_of(lines, ("missing",)) == 1


VALUES = st.recursive(
    st.sampled_from(["1", "true", "2.5", '"a"', "'[x]'", '"""\nq\n"""', '"#"', '"\\""']),
    lambda deeper: st.one_of(
        st.lists(deeper, max_size=3).map(lambda parts: "[\n" + ", # c\n".join(parts) + "]"),
        st.lists(deeper, max_size=3).map(
            lambda parts: "{" + ", ".join(f"k{n} = {part}" for n, part in enumerate(parts)) + "}"
        ),
    ),
    max_leaves=8,
)


@given(st.lists(VALUES, max_size=4))
def test_any_value_is_walked_through_as_the_parser_does(values: list[str]) -> None:
    text = "[t]\n" + "\n".join(f"v{n} = {value}" for n, value in enumerate(values)) + "\n[[e]]\nlast = 1\n"
    found = lines_of(text)
    assert set(found) == set(every_path(tomllib.loads(text))) - {()}
    assert found[("e", 0, "last")] == text.count("\n")
    for n in range(len(values)):
        assert text.split("\n")[found[("t", f"v{n}")] - 1].startswith(f"v{n} = ")
