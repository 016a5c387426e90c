"""Fetch files from a mirror directory or the Hugging Face Hub, and verify their checksums."""

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from huggingface_hub import HfApi, hf_hub_download
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

from pipeline.core.messages import UserError, one_line
from pipeline.core.paths import users_path

_REMEDY = (
    "Check the name, and that this machine can reach the Hub. A private or gated repository needs HF_TOKEN or "
    '"hf auth login". To work without the Hub, see docs/choose_a_base_model.md#without-the-hub.'
)

RepoType = Literal["model", "dataset"]


def mirror_directory(variable: str) -> Path | None:
    """Return the directory that a variable of the environment names, or None. Raises UserError if it is missing."""
    value = os.environ.get(variable)
    if value and not users_path(value).is_dir():
        raise UserError(f'{variable} is "{value}", which is not a directory. Correct or unset it.')
    return users_path(value) if value else None


def file_sha256(path: Path) -> str:
    """Return the sha256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def local_file(directory: Path, name: str) -> Path:
    """Return the path of a file in a directory. Raises UserError if it is missing."""
    path = directory / name
    if not path.is_file():
        raise UserError(f"{path} is missing. Restore it.")
    return path


def require_sha256(path: Path, sha256: str) -> None:
    """Raise UserError if a file has a different sha256."""
    digest = file_sha256(path)
    if digest != sha256:
        raise UserError(f"{path} is not the published file: its sha256 is {digest:.12}, not {sha256:.12}. Replace it.")


def download_file(repo: str, file: str, revision: str, repo_type: RepoType) -> Path:
    """Download a file at a commit, unless the Hub's cache has it, and return its path there."""
    with hub_errors(f"{repo}: {file} at {revision:.12}"):
        path = hf_hub_download(repo, file, revision=revision, repo_type=repo_type)
    return Path(path)


def repo_info(repo: str, revision: str, repo_type: RepoType) -> tuple[str, str, list[str]]:
    """Look up a repository at a commit, a branch or a tag, or at "" for the default branch.

    Returns:
        The current name, which may differ from `repo`, the commit, and the names of the files.
    """
    with hub_errors(f"{repo} at {revision}" if revision else repo):
        info = HfApi().repo_info(repo, revision=revision or None, repo_type=repo_type, timeout=10)
        if not re.fullmatch("[0-9a-f]{40}", info.sha or ""):  # Users paste the commit into a command.
            raise ValueError("the Hub's answer has no commit")
    files = info.siblings or []  # type: ignore[union-attr]  # Only kernels, which are another type, have none.
    return info.id, info.sha or "", [file.rfilename for file in files]


def pin_dataset(dataset: str) -> str:
    """Return `name@commit` for the newest commit of a dataset, given as `name` or `name@branch`."""
    name, _, revision = dataset.partition("@")
    current_name, commit, _ = repo_info(name, revision, "dataset")
    return f"{current_name}@{commit}"


@contextmanager
def hub_errors(subject: str) -> Iterator[None]:
    """Turn an error of the Hub's client into a UserError with one line. Errors of the local disk stay as they are."""
    try:
        yield
    except Exception as error:
        if isinstance(error, OSError) and error.errno:
            raise
        # The client raises LocalEntryNotFoundError from the error that says why it could not download the file.
        cause = error.__cause__ if isinstance(error, LocalEntryNotFoundError) else error
        reason = one_line(cause or error)
        if isinstance(cause, HfHubHTTPError):
            reason = f"the Hub answered {cause.response.status_code} {cause.response.reason_phrase}"
        raise UserError(f"{subject}: {reason}. {_REMEDY}") from None
