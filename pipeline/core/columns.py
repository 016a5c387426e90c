"""Tables for a terminal."""

from typing import Literal

from tabulate import tabulate

from pipeline.core.messages import printable


def aligned(rows: list[list[str]], side: Literal["left", "right"]) -> list[str]:
    """Lines of a table with aligned columns: the first to the left, the others to `side`. No control characters."""
    cells = [list(map(printable, row)) for row in rows]
    align = ["left", *[side] * (len(rows[0]) - 1)]
    return tabulate(cells, tablefmt="plain", disable_numparse=True, colalign=align).split("\n")
