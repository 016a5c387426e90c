"""Write the user's data into the repository."""

import shutil
import subprocess
import sys
from pathlib import Path

from pipeline.core.messages import UserError
from pipeline.core.output import atomic_output
from pipeline.core.paths import LOCK, METRICS_DIR
from pipeline.core.text import listing
from pipeline.onboarding.user_data import CUSTOM
from pipeline.sources.files import visible_entries


def require_room(source: str, files: dict[Path, Path], force: bool) -> None:
    """Raise UserError if the files come from data/custom, or if data/custom is not empty and `force` is not set.

    Args:
        source: What the user named.
        files: Where each file goes, and where it comes from.
        force: Whether `copy_files` may remove what is in data/custom.
    """
    if any(path.parent.resolve().is_relative_to(CUSTOM.resolve()) for path in files.values()):
        raise UserError(
            f"{source} is already in {CUSTOM}. Name the files there after their splits, such as train.csv, and run "
            f'"python -m pipeline.init {CUSTOM}".'
        )
    if (entries := visible_entries(CUSTOM)) and not force:
        raise UserError(
            f"{CUSTOM} is not empty ({listing(path.name for path in entries)}). Use --force to replace everything in "
            f'it, or run "python -m pipeline.init {CUSTOM}" to use the files in it.'
        )


def copy_files(files: dict[Path, Path]) -> None:
    """Replace everything in data/custom except hidden files, and let DVC track the new files.

    If this is interrupted, data/custom has all of the earlier files or all of the new ones, but the earlier .dvc files
    may be gone.

    Args:
        files: Where each file goes, and where it comes from.
    """
    CUSTOM.mkdir(parents=True, exist_ok=True)
    earlier = visible_entries(CUSTOM)
    with atomic_output(CUSTOM) as draft:
        for target, source in files.items():
            path = draft / target.relative_to(CUSTOM)
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, path)
        if dvc_files := [path for path in earlier if path.suffix == ".dvc"]:
            _run_dvc("remove", *dvc_files)  # This also removes the lines of DVC from .gitignore.
        for path in set(CUSTOM.iterdir()) - set(earlier):
            if path.is_dir() and not path.is_symlink():
                shutil.copytree(path, draft / path.name, symlinks=True)
            else:
                shutil.copy2(path, draft / path.name, follow_symlinks=False)
    # DVC rejects files that git tracks.
    if for_dvc := [path for path in visible_entries(CUSTOM) if not _files_in_git(path)]:
        _run_dvc("add", *for_dvc)


def remove_results() -> None:
    """Remove dvc.lock, the report, the model card, and the files in metrics that git tracks."""
    results = {LOCK, METRICS_DIR / "report.html", METRICS_DIR / "model_card.md"} | _files_in_git(METRICS_DIR)
    for path in results - {METRICS_DIR / ".gitignore"}:
        path.unlink(missing_ok=True)


def _run_dvc(command: str, *paths: Path) -> None:
    """Run a DVC command, which reports its errors itself. Raises UserError if it fails."""
    # The output is not shown, because DVC's hints on what to type next would differ from ours.
    done = subprocess.run([sys.executable, "-m", "dvc", command, *paths], stdout=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise UserError(f'"dvc {command}" failed, see above. Correct this, and run init again with --force.')


def _files_in_git(path: Path) -> set[Path]:
    output = subprocess.check_output(["git", "ls-files", "-z", "--", path], encoding="utf-8")
    return {Path(name) for name in output.split("\0") if name}
