"""Write the user's data into the repository."""

import logging
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from pipeline.core.messages import UserError
from pipeline.core.output import atomic_output, write_text
from pipeline.core.paths import METRICS_DIR
from pipeline.onboarding.user_data import CUSTOM, earlier_files
from pipeline.params import LOCK, PARAMS


def write_data(text: str, files: dict[Path, Path], link: bool, fresh: bool) -> None:
    """Put the files into data/custom, write params.yaml, and remove what they replace.

    If this is interrupted, the earlier files are still there, or the new ones are complete.

    Args:
        text: The new text of params.yaml.
        files: Where each file goes, and where it comes from.
        link: Whether to put links into data/custom instead of copies.
        fresh: Whether to remove the committed results, too.
    """
    earlier = earlier_files() if files else []
    entries = sorted({CUSTOM / target.relative_to(CUSTOM).parts[0] for target in files})
    # DVC would replace a link with a copy, and it rejects files that git tracks.
    for_dvc = [] if link else [entry for entry in entries if not _files_in_git(entry)]
    with _dvc() as repository:
        results = _results(repository)  # If dvc.yaml is invalid, this fails before anything is written.
        if link:
            _untrack(repository, earlier)
        for entry in entries:
            _place(entry, files, link)
        if for_dvc:
            repository.add([str(entry) for entry in for_dvc])
        write_text(PARAMS, text)
        replaced = set(earlier) - {*entries, *(Path(f"{entry}.dvc") for entry in for_dvc)}
        _untrack(repository, replaced)
    if fresh:
        replaced.update(results)
    for path in replaced:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _place(entry: Path, files: dict[Path, Path], link: bool) -> None:
    """Write a file, or a directory of files, in data/custom. It replaces an earlier one when it is complete."""
    with atomic_output(entry) as draft:
        for target, source in files.items():
            if target.is_relative_to(entry):
                path = draft / target.relative_to(entry)
                path.parent.mkdir(exist_ok=True)
                if link:
                    path.symlink_to(source.resolve())
                else:
                    shutil.copyfile(source, path)


@contextmanager
def _dvc() -> Iterator[Any]:
    """Open the DVC repository in this process: an interrupted command must not leave a child behind that writes files.

    Raises:
        UserError: DVC fails in the block.
    """
    from dvc.exceptions import DvcException
    from dvc.repo import Repo

    logging.getLogger("dvc").setLevel(logging.WARNING)  # Its hints on what to type next would differ from ours.
    try:
        with closing(Repo()) as repository:
            yield repository
    except DvcException as error:
        reason = str(error).rstrip(".")
        raise UserError(f"DVC failed: {reason}. Correct this, and run init again with --force.") from None


def _untrack(repository: Any, paths: Iterable[Path]) -> None:
    """Let DVC forget files: remove the given .dvc files, and the lines that DVC added to .gitignore."""
    for path in paths:
        if path.suffix == ".dvc" and path.exists():
            repository.remove(str(path))


def _results(repository: Any) -> list[Path]:
    """Return dvc.lock, and the files in metrics that git tracks or that stages write."""
    outputs = {Path(os.path.relpath(output.fs_path)) for output in repository.index.outs}
    files = {path for path in outputs | _files_in_git(METRICS_DIR) if path.is_relative_to(METRICS_DIR)}
    return [LOCK, *(files - {METRICS_DIR / ".gitignore"})]


def _files_in_git(path: Path) -> set[Path]:
    output = subprocess.check_output(["git", "ls-files", "-z", "--", path], encoding="utf-8")
    return {Path(name) for name in output.split("\0") if name}
