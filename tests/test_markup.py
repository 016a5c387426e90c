"""Untrusted text in terminal tables and in Markdown."""

import html
import re

import pytest

from pipeline.core.text import aligned, code

HOSTILE = "| <img src=x onerror=alert(1)> `tick` @everyone https://example.org [a](b) __b__ #1 &amp; $x$ \\ ---"


def test_cells_stay_on_their_line_and_in_their_columns() -> None:
    lines = aligned([["", "A", "B"], ["cpu", "x\x1b]0;t\x07\r\n\u2028\u202eVerdict: B is better", "y"]], "left")
    assert all(line.isprintable() for line in lines)
    assert lines[1] == "cpu  x ]0;t     Verdict: B is better  y"


def test_code_escapes_all_markup() -> None:
    escaped = re.fullmatch("<code>(.*)</code>", code(HOSTILE + "\n# a heading"))
    assert escaped is not None
    assert html.unescape(escaped[1]) == HOSTILE + " # a heading"
    assert not set(escaped[1].replace("&#", "")) & set("|<>@`[]*_!:#.$&\\")


@pytest.mark.parametrize("name", ["sentence-transformers/all-MiniLM-L6-v2", "not_equivalent"])
def test_an_ordinary_name_stays_readable(name: str) -> None:
    assert code(name) == f"<code>{name}</code>"
