"""Tables for a terminal."""

from pipeline.core.messages import printable


def aligned(rows: list[list[str]], side: str) -> list[str]:
    """Printable lines of columns as wide as their widest cell; all but the first are aligned to a side, "<" or ">"."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sides = ["<", *side * (len(widths) - 1)]
    return [
        printable("  ".join(f"{cell:{to}{width}}" for cell, to, width in zip(row, sides, widths, strict=True))).rstrip()
        for row in rows
    ]
