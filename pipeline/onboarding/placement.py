"""Change several files so that either all changes are made, or none."""

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_WORKSHOP = Path(".dvc/tmp")  # DVC's own .gitignore covers this directory.


@contextmanager
def all_or_nothing(removed: Sequence[Path], written: Sequence[Path]) -> Iterator[None]:
    """Remove some files and directories. If the block fails, restore them and the files that the block writes.

    Args:
        removed: Paths to remove before the block runs. They are moved aside, not copied.
        written: Files that the block may create or change.
    """
    _WORKSHOP.mkdir(parents=True, exist_ok=True)
    backups = Path(tempfile.mkdtemp(dir=_WORKSHOP, prefix="init-"))
    try:
        moved = {path: backups / f"moved-{number}" for number, path in enumerate(removed) if _exists(path)}
        copied = {path: backups / f"copied-{number}" for number, path in enumerate(written) if path.is_file()}
        for path in moved:
            copied.pop(path, None)
        for path, backup in copied.items():
            shutil.copy2(path, backup)
        try:
            for path, backup in moved.items():
                path.rename(backup)
            yield
        except BaseException:  # A signal raises SystemExit, which is not an Exception.
            for path in set(written) - moved.keys() - copied.keys():
                _remove(path)
            for path, backup in {**moved, **copied}.items():
                if _exists(backup):
                    _remove(path)
                    path.parent.mkdir(parents=True, exist_ok=True)
                    backup.rename(path)
            raise
    finally:
        shutil.rmtree(backups, ignore_errors=True)


def _exists(path: Path) -> bool:
    return path.exists() or path.is_symlink()


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
