"""Write files and directories so that they appear complete or not at all."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pipeline.core.messages import UserError


@contextmanager
def atomic_output(target: Path) -> Iterator[Path]:
    """Yield the path of a draft, which becomes `target` if the block succeeds and is removed if the block fails.

    The block writes a file or a directory to this path. It is in a hidden directory next to `target`, so that the last
    step is a rename within one file system. The next run removes what a killed process has left there.
    """
    drafts = target.parent / f".{target.name}.draft"
    _remove(drafts, target)
    drafts.mkdir(parents=True)
    try:
        draft = drafts / target.name
        yield draft
        if draft.is_file():
            require_file_path(target)
        elif draft.is_dir() and target.is_dir():  # A rename does not replace a directory that has files in it.
            target.rename(drafts / "previous")
        draft.replace(target)
    finally:
        _remove(drafts, target)


def _remove(drafts: Path, target: Path) -> None:
    """Remove the drafts. If the last step was interrupted between its two renames, restore the old directory first."""
    previous = drafts / "previous"
    if previous.exists() and not target.exists():
        previous.rename(target)
    shutil.rmtree(drafts, ignore_errors=True)


def require_file_path(path: Path) -> None:
    """Raise UserError if `path` cannot become a file because it is a directory."""
    if path.is_dir():
        raise UserError(f"{path} is a directory. Name a file.")


def write_text(path: Path, text: str) -> None:
    """Write a small text file atomically, with the same bytes on every system."""
    with atomic_output(path) as draft:
        draft.write_text(text, encoding="utf-8", newline="\n")


def write_json(path: Path, content: dict[str, Any] | list[dict[str, Any]]) -> None:
    """Write JSON that is easy to read and to diff: sorted keys, an indentation of two spaces, and `rounded` floats."""
    content = json.loads(json.dumps(content), parse_float=lambda number: rounded(float(number)))
    write_text(path, json.dumps(content, indent=2, sort_keys=True) + "\n")


def write_details(path: Path, details: dict[str, Any]) -> None:
    """Write details of a run that people read but do not compare, as a list, in which `dvc metrics` shows nothing.

    dvc.yaml still declares the files as metrics, because DVC saves no run of a stage with any other uncached output.
    """
    write_json(path, [details])


def rounded(value: float) -> float:
    """Round to 6 decimal places, or to 6 significant digits if the absolute value is below 0.1."""
    return round(value, 6) if abs(value) >= 0.1 else float(f"{value:.6g}")
