"""What a stage tells of its run that people read but do not compare: JSON that git tracks, and no metric.

DVC takes the numbers of a JSON object for metrics, and has no columns for what lies in a list. So details are a list of
one object, in a file that dvc.yaml declares as a metric all the same: beside an output of another kind that is not in
DVC's cache, DVC saves no run of the stage, and going back to earlier parameters would run it again.
"""

import json
from pathlib import Path
from typing import Any

from pipeline.core.output import write_json


def write_details(path: Path, details: dict[str, Any]) -> None:
    """As `write_json`, for details."""
    write_json(path, [details])


def parse_details(text: str) -> dict[str, Any]:
    """What `write_details` was given. Raises ValueError for another text."""
    match json.loads(text):
        case [dict(details)]:
            return details
    raise ValueError("not a list of one JSON object")
