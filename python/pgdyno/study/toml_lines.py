"""Line numbers of the keys of a TOML text, for error messages: the parser returns values without positions.

The text must be valid TOML, accepted by the parser before; this module does not report errors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

Path = tuple[str | int, ...]
"""The keys and indexes that lead to a value: ``("factors", "clients", 2)``."""

_TOKEN = re.compile(
    r'''(?P<text>"""(?:\\.|[^\\])*?"{3,5}|\'\'\'.*?'{3,5}|"(?:\\.|[^"\\])*"|'[^']*')'''
    r"|(?P<comment>\#[^\n]*)|(?P<space>[ \t\r]+)|(?P<sign>\n|[\[\]{}=,.])|(?P<bare>[^\s\[\]{}=,.#\"']+)",
    re.DOTALL,
)


def lines_of(text: str) -> dict[Path, int]:
    """Return the line, counted from 1, of every table, key and array element."""
    return _Walk(text).lines


def line_of(lines: dict[Path, int], path: Path) -> int:
    """Return the line of the path, or of the nearest enclosing element in the text."""
    return next((lines[path[:n]] for n in range(len(path), 0, -1) if path[:n] in lines), 1)


def too_deep(text: str, depth_max: int) -> int | None:
    """Return the first line with deeper brackets or longer dotted keys than ``depth_max``, in any text."""
    brackets = dots = 0
    for word, line in _tokens(text):
        brackets += (word in ("[", "{")) - (word in ("]", "}") and brackets > 0)
        if word == ".":
            dots += 1
        elif len(word) == 1 and word in "\n[]{}=,":
            dots = 0
        if max(brackets, dots) > depth_max:
            return line
    return None


class _Walk:
    """One pass over the tokens. ``lines`` is the result."""

    def __init__(self, text: str) -> None:
        self.lines: dict[Path, int] = {}
        self._lengths: dict[Path, int] = {}  # of arrays of tables, so far
        self._tokens = _tokens(text)
        self._here: tuple[str, int] | None = next(self._tokens, None)
        self._document()

    def _next(self) -> tuple[str, int]:
        assert self._here is not None
        taken, self._here = self._here, next(self._tokens, None)
        return taken

    def _sees(self, *signs: str) -> bool:
        return self._here is not None and self._here[0] in signs

    def _skip_lines(self) -> None:
        while self._sees("\n"):
            self._next()

    def _document(self) -> None:
        table: Path = ()
        self._skip_lines()
        while self._here is not None:
            if self._sees("["):
                table = self._header()
            else:
                self._pair(table)
            self._skip_lines()

    def _header(self) -> Path:
        line = self._next()[1]
        is_array = self._sees("[")
        if is_array:
            self._next()
        path: Path = ()
        for name in self._keys("]"):
            path = self._last_of((*path, name))
        while self._sees("]"):
            self._next()
        if is_array:
            whole = path[:-1] if path in self.lines and isinstance(path[-1], int) else path
            self._mark(whole, line)
            self._lengths[whole] = self._lengths.get(whole, 0) + 1
            path = self._last_of(whole)
        self._mark(path, line)
        return path

    def _last_of(self, path: Path) -> Path:
        return (*path, self._lengths[path] - 1) if path in self._lengths else path

    def _keys(self, end: str) -> list[str]:
        names = []
        while not self._sees(end):
            word = self._next()[0]
            if word != ".":
                names.append(_unquoted(word))
        return names

    def _pair(self, table: Path) -> None:
        assert self._here is not None
        line = self._here[1]
        names = self._keys("=")
        self._next()
        for n in range(1, len(names) + 1):
            self._mark((*table, *names[:n]), line)
        self._value((*table, *names))

    def _value(self, path: Path) -> None:
        if self._sees("["):
            self._next()
            index = 0
            self._skip_lines()
            while not self._sees("]"):
                assert self._here is not None
                self._mark((*path, index), self._here[1])
                self._value((*path, index))
                index += 1
                while self._sees("\n", ","):
                    self._next()
            self._next()
        elif self._sees("{"):
            self._next()
            while not self._sees("}"):
                if self._sees(",", "\n"):
                    self._next()
                else:
                    self._pair(path)
            self._next()
        else:
            while self._here is not None and not self._sees(",", "]", "}", "\n"):
                self._next()

    def _mark(self, path: Path, line: int) -> None:
        for n in range(1, len(path) + 1):
            self.lines.setdefault(path[:n], line)


def _tokens(text: str) -> Iterator[tuple[str, int]]:
    """Yield each token with its first line, without spaces and comments."""
    line = 1
    for found in _TOKEN.finditer(text):
        word = found[0]
        if found.lastgroup not in ("comment", "space"):
            yield word, line
        line += word.count("\n")


def _unquoted(word: str) -> str:
    """Return a key without quotes. Handles only escaped quotes and backslashes; others are rare in keys."""
    if word[0] == '"':
        return word[1:-1].replace('\\"', '"').replace("\\\\", "\\")
    return word[1:-1] if word[0] == "'" else word
