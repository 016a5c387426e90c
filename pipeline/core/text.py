"""Text for people: numbers, tables, quoted values and suggestions."""

import difflib
import json
import re
from collections.abc import Collection, Iterable
from typing import Any, Literal

from pipeline.core.messages import printable

# The ASCII punctuation that can mean something in Markdown, and the dot of an address; "_" only at the edge of a word.
_MARKUP = re.compile(r"[!-&*+.:-@\[-^`{-~]|(?<![^\W_])_|_(?![^\W_])")


def percent(fraction: float, digits: int = 1) -> str:
    """Format a fraction in percent, without the percent sign."""
    return f"{100 * fraction:.{digits}f}"


def points(difference: float, digits: int = 1) -> str:
    """Format a difference between fractions in percentage points, with its sign; zero is "+0.0"."""
    return f"{round(100 * difference, digits) + 0.0:+.{digits}f}"  # Adding 0.0 turns "-0.0" into "+0.0".


def quoted(value: Any, longest: int = 60) -> str:
    """Format a value of params.yaml as JSON in one line, cut to a readable length."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def literal(value: object) -> str:
    """Format a value of a data file as a Python literal, which shows invisible characters, cut to a readable length."""
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def listing(names: Iterable[object], most: int = 10) -> str:
    """Return the first names for a message, and how many more there are."""
    shortened = [f"{name}"[:60] for name in names]
    return ", ".join(shortened[:most]) + (f" and {len(shortened) - most} more" if len(shortened) > most else "")


def closest_match(name: str, choices: Collection[str]) -> str | None:
    """Find the choice that the user may have meant."""
    # By edit distance alone, "adam" is closer to "adagrad" than to "adamw_torch".
    completions = [choice for choice in choices if name and choice.startswith(name)]
    return next(iter(completions or difflib.get_close_matches(name, choices, n=1)), None)


def aligned(rows: list[list[str]], side: Literal["left", "right"]) -> list[str]:
    """Format a table for a terminal, without control characters.

    Args:
        side: The alignment of all columns but the first one, which is aligned to the left.
    """
    from tabulate import tabulate  # It is too slow for `check`, which uses other functions of this module.

    cells = [[printable(cell) for cell in row] for row in rows]
    alignment = ["left", *[side] * (len(rows[0]) - 1)]
    return tabulate(cells, tablefmt="plain", disable_numparse=True, colalign=alignment).split("\n")


def code(text: str) -> str:
    """Escape untrusted text for Markdown, also for a table cell: no markup, no @mention, no line break."""
    return f"<code>{_MARKUP.sub(lambda match: f'&#{ord(match[0])};', printable(text))}</code>"


def table(header: list[str], rows: list[list[str]]) -> list[str]:
    """Format a Markdown table. Its cells are Markdown, so pass untrusted text through `code`."""
    return [f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *rows)]
