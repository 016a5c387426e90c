"""Copy the user's files to data/custom, where the stage download reads them."""

import shutil
import subprocess
import sys
from pathlib import Path

from pipeline.core.messages import UserError
from pipeline.core.output import atomic_output
from pipeline.core.task import TRAIN
from pipeline.core.text import listing
from pipeline.sources.files import find_files, visible_entries
from pipeline.sources.tables import data_stem

CUSTOM = Path("data/custom")


def place_files(path: Path, force: bool) -> None:
    """Replace everything in data/custom except hidden files with a copy of the data, and let DVC track it.

    If this is interrupted, data/custom has all of the earlier files, or all of the new ones.
    """
    use = f'run "python -m pipeline.init {CUSTOM}" to use the files in it'
    if path.parent.resolve().is_relative_to(CUSTOM.resolve()):
        raise UserError(f"{path} is already in {CUSTOM}. Name it after its split, such as train.csv, and {use}.")
    entries = [entry.name for entry in visible_entries(CUSTOM)]
    if entries and not force:
        raise UserError(f"{CUSTOM} is not empty ({listing(entries)}). Use --force to replace all of it, or {use}.")
    copies = {TRAIN + path.name.removeprefix(data_stem(path)): path}
    if path.is_dir():
        copies = {file.name: file for files in find_files(path).values() for file in files}
    CUSTOM.mkdir(parents=True, exist_ok=True)
    with atomic_output(CUSTOM) as draft:
        shutil.copytree(CUSTOM, draft, symlinks=True, ignore=lambda parent, _: entries if parent == str(CUSTOM) else [])
        for name, file in copies.items():
            shutil.copyfile(file, draft / name)
    # DVC's hints on what to type next, which it prints to stdout, differ from ours.
    done = subprocess.run([sys.executable, "-m", "dvc", "add", *copies], cwd=CUSTOM, stdout=subprocess.DEVNULL)
    if done.returncode:
        raise UserError('"dvc add" failed, see above. Correct this, and run init again with --force.')
