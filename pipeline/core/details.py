"""JSON files with details of a run that people read but do not compare.

Git tracks these files. `dvc metrics` shows the numbers in a JSON object but nothing inside a list, so the details are a
list with one object. dvc.yaml still declares the files as metrics: DVC saves no run of a stage in its run cache if one
of the outputs is uncached and neither a metric nor a plot. Going back to earlier parameters would then run the stage
again.
"""

import json
from pathlib import Path
from typing import Any

from pipeline.core.output import write_json


def write_details(path: Path, details: dict[str, Any]) -> None:
    """Write details as a list with one object, in the format of `write_json`."""
    write_json(path, [details])


def parse_details(text: str) -> dict[str, Any]:
    """Parse the content of a file that `write_details` has written. Raises ValueError for any other text."""
    match json.loads(text):
        case [dict(details)]:
            return details
    raise ValueError("not a list of one JSON object")
