"""Documentation uses standard terms and short sentences. The refused phrases are in private_phrases.toml."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RULES = tomllib.loads((Path(__file__).parent / "private_phrases.toml").read_text("utf-8"))
PHRASES = [
    (re.compile(rule["pattern"], re.IGNORECASE | re.MULTILINE), rule["use"]) for rule in RULES["phrases"]
]
WORDS_MAX = 25
"""Maximum number of words per sentence: longer ones contain more than one idea."""

PAGES = sorted(
    [
        *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG")),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "python").rglob("README.md"),
    ]
)
HELP = ROOT / "docs" / "reference" / "cli.md"
OTHER_TEXTS = sorted(
    [
        *(ROOT / "python").rglob("caveats.toml"),
        *(ROOT / "studies").rglob("*.toml"),
        *(ROOT / "tests" / "data" / "golden").glob("*.txt"),
    ]
)
"""Texts other than Markdown: caveats, study files, golden files of reports."""


def without_code(markdown: str) -> str:
    """Return the page with code, comments and link targets replaced; the number of lines stays the same."""

    def blank(found: re.Match[str]) -> str:
        return "\n" * found[0].count("\n")

    text = re.sub(r"^( *)```.*?^\1```$", blank, markdown, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"<!--.*?-->", blank, text, flags=re.DOTALL)
    text = re.sub(r"^ {4,}.*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"`[^`\n]+`", "CODE", text)
    return re.sub(r"\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\([^()\s]+\)", r"\1", text)


def refused_in(text: str) -> list[str]:
    """Return each refused phrase in a text, with its line and the term to use."""
    found = [(one, use) for pattern, use in PHRASES for one in pattern.finditer(text)]
    return [
        f"line {text.count(chr(10), 0, one.start()) + 1}: “{one[0].strip()}”: {use}"
        for one, use in sorted(found, key=lambda pair: pair[0].start())
    ]


def sentences(markdown: str) -> Iterator[str]:
    """Yield the sentences of paragraphs and list items, without tables and headings."""
    lines = without_code(markdown).splitlines()
    prose = ["" if re.match(r"\s*(\||#|>? *\[!)", line) else line for line in lines]
    text = re.sub(r"^\s*(?:>\s*)?(?:[-*]|\d+\.)\s+", "\n", "\n".join(prose), flags=re.MULTILINE)
    for paragraph in re.split(r"\n\s*\n", text):
        joined = re.sub(r"\b(vs|e\.g|i\.e|etc)\.", r"\1", " ".join(paragraph.split()))
        yield from (one for one in re.split(r"(?<=[.!?])[\"”)*_]*\s+|:$", joined) if one)


def words_in(sentence: str) -> int:
    """Count words. A list of names in code counts as one."""
    shorter = re.sub(r"CODE(?:(?:,| and| or|, and|, or|/)\s*CODE)+", "CODE", sentence)
    return sum(bool(re.search(r"\w", word)) for word in shorter.split())


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def test_a_refused_phrase_is_found_in_its_example() -> None:
    for (pattern, use), rule in zip(PHRASES, RULES["phrases"], strict=True):
        assert pattern.search(rule["example"]), use


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_uses_standard_terms_in_sentences_of_at_most_25_words(page: Path) -> None:
    text = page.read_text("utf-8")
    long = [f"{words_in(one)} words: {one}" for one in sentences(text) if words_in(one) > WORDS_MAX]
    wrong = refused_in(without_code(text)) + long
    assert wrong == [], "\n".join(wrong)


def test_the_help_of_every_command_uses_standard_terms() -> None:
    text = re.sub(r"\s*\n\s+", " ", HELP.read_text("utf-8"))  # options whose help has several lines
    text = re.sub(r"--[a-z-]+", "OPTION", text)
    refused = refused_in(text)
    assert refused == [], "\n".join(refused)


@pytest.mark.parametrize("path", OTHER_TEXTS, ids=name_of)
def test_a_text_other_than_a_page_uses_standard_terms(path: Path) -> None:
    text = re.sub(r"\n#? *(?=\S)", " ", path.read_text("utf-8"))
    refused = refused_in(text)
    assert refused == [], "\n".join(refused)


def test_sentences_are_counted_without_code_tables_and_links() -> None:
    page = "# Title\n\nOne two vs. three `a b c`, `d` and `e` [four five](x.md). Six:\n\n- Seven.\n\n| a |\n"
    assert list(sentences(page)) == ["One two vs three CODE, CODE and CODE four five.", "Six", "Seven."]
    assert [words_in(one) for one in sentences(page)] == [7, 1, 1]
