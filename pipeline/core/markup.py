"""Markdown tables, and untrusted text escaped for Markdown."""

import re

from pipeline.core.messages import printable

# The ASCII punctuation that can mean something in Markdown, and the dot of an address; not "_" within a word.
_MARKUP = re.compile(r"[!-&*+.:-@\[-^`{-~]|(?<![^\W_])_|_(?![^\W_])")


def code(text: str) -> str:
    """Escape untrusted text, also for a table cell: no markup, no @mention, no line break."""
    return f"<code>{_MARKUP.sub(lambda found: f'&#{ord(found[0])};', printable(text))}</code>"


def table(header: list[str], rows: list[list[str]]) -> list[str]:
    """Lines of a table. Cells are Markdown: pass untrusted text through `code`."""
    return [f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *rows)]
