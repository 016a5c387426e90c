"""Facts about a run that people read but do not compare: JSON that git tracks and that `dvc metrics` does not show.

DVC shows the numbers in a JSON object as metrics, but nothing inside a list, so details are a list with one object.
dvc.yaml still declares the file as a metric, because DVC does not save a run whose outputs are uncached and of another
type, and going back to earlier parameters would run the stage again.
"""

import json
from pathlib import Path
from typing import Any

from pipeline.core.output import write_json


def write_details(path: Path, details: dict[str, Any]) -> None:
    """Write details like `write_json`."""
    write_json(path, [details])


def parse_details(text: str) -> dict[str, Any]:
    """Read what `write_details` has written. Raises ValueError for any other text."""
    match json.loads(text):
        case [dict(details)]:
            return details
    raise ValueError("not a list of one JSON object")
