"""Text for people: numbers, tables, quoted values and suggestions."""

import difflib
import json
import re
from collections.abc import Collection, Iterable
from typing import Any, Literal

from pipeline.core.messages import UserError, printable

# ASCII punctuation with a meaning in Markdown, and the dot, which makes links of addresses. "_" has a meaning only at
# the edge of a word.
_MARKUP = re.compile(r"[!-&*+.:-@\[-^`{-~]|(?<![^\W_])_|_(?![^\W_])")


def format_number(value: float) -> str:
    """Format a label or a prediction of a regression."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def quoted(value: Any) -> str:
    """Format a value of params.yaml as JSON in one line, shortened to a readable length."""
    return shortened(json.dumps(value, ensure_ascii=False, default=str), 60)


def literal(value: object) -> str:
    """Format a value of a data file as a short Python literal, which makes invisible characters visible."""
    return shortened(repr(value), 40)


def shortened(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 3]}..."


def listing(names: Iterable[object], most: int = 10) -> str:
    """Join the first names for a message, and say how many more there are."""
    texts = [shortened(f"{name}", 60) for name in names]
    return ", ".join(texts[:most]) + (f" and {len(texts) - most} more" if len(texts) > most else "")


def closest_match(name: str, choices: Collection[str]) -> str | None:
    """Return the choice that the user most likely meant, or None."""
    # By edit distance alone, "adam" is closer to "adagrad" than to "adamw_torch".
    completions = [choice for choice in choices if name and choice.startswith(name)]
    return next(iter(completions or difflib.get_close_matches(name, choices, n=1)), None)


def did_you_mean(name: str, choices: Collection[str]) -> str:
    """Return the end of a message: a question about the choice that the user most likely meant, or nothing."""
    match = closest_match(name, choices)
    return f' Did you mean "{match}"?' if match else ""


def require_choice(key: str, name: str, choices: Collection[str]) -> None:
    """Raise UserError if a name in params.yaml is not one of the choices."""
    if name not in choices:
        hint = did_you_mean(name, choices)
        raise UserError(f"params.yaml: {key} must be one of {listing(choices, 20)}, got {quoted(name)}.{hint}")


def aligned(rows: list[list[str]], side: Literal["left", "right"]) -> list[str]:
    """Format a table for a terminal, without control characters. `side` aligns all columns except the first one."""
    from tabulate import tabulate  # This import is too slow for `check`, which uses other functions.

    cells = [[printable(cell) for cell in row] for row in rows]
    alignment = ["left", *[side] * (len(rows[0]) - 1)]
    return tabulate(cells, tablefmt="plain", disable_numparse=True, colalign=alignment).split("\n")


def escaped(text: str) -> str:
    """Escape untrusted text for Markdown, so that it adds no markup, @mention or line break, even in a table."""
    return _MARKUP.sub(lambda match: f"&#{ord(match[0])};", printable(text))


def code(text: str) -> str:
    """Format untrusted text as code in Markdown, see `escaped`."""
    return f"<code>{escaped(text)}</code>"
