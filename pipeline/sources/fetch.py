"""Fetch files from a mirror directory or the Hugging Face Hub, and verify their checksums."""

import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

from pipeline.core.messages import UserError
from pipeline.core.paths import users_path

_CHECK = "Check the name, and that this machine can reach the Hub."
_MIRRORS = "To work without the Hub, see docs/data_and_models.md#without-the-hub."
_REMEDIES = {  # by the status of the Hub's answer
    # The Hub also sends 401 if the repository does not exist.
    401: 'Check the name and the variable HF_TOKEN. If the repository is private, run "hf auth login".',
    403: "Ask for access on its page on the Hub.",
}
_TEMPORARY = {408, 429, 500, 502, 503, 504}  # The client tries again after these answers.
_ANSWER_SECONDS = 10  # as in the client; a missing network is usually reported at once

RepoType = Literal["model", "dataset"]


class RepoInfo(NamedTuple):
    """A repository on the Hub. Its name is the current one, even if it was looked up by an earlier one."""

    name: str
    commit: str
    files: list[str]


def mirror_directory(variable: str) -> Path | None:
    """Return the directory that an environment variable names, or None if the variable is not set.

    Raises:
        UserError: The variable does not name a directory.
    """
    value = os.environ.get(variable)
    if not value:
        return None
    directory = users_path(value)
    if not directory.is_dir():
        raise UserError(f'{variable} is "{value}", but {directory.absolute()} is not a directory. Correct or unset it.')
    return directory


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


def copy_verified(source: Path, target: Path, sha256: str | None) -> None:
    """Copy a file. Raises UserError if its sha256 is known and the file has a different one."""
    if sha256:
        require_sha256(source, sha256)
    shutil.copyfile(source, target)


def require_sha256(path: Path, sha256: str) -> None:
    """Raise UserError if a file has a different sha256."""
    digest = file_sha256(path)
    if digest != sha256:
        raise UserError(
            f"{path} is not the published file: its sha256 starts with {digest:.12}, not {sha256:.12}. Replace it."
        )


def download_file(repo: str, file: str, revision: str, repo_type: RepoType) -> Path:
    """Download a file of a Hub repository at a commit to the local cache, and return its path there.

    Raises:
        UserError: The Hub does not send the file. Without a network, this takes at most `_ANSWER_SECONDS`.
    """
    from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url
    from huggingface_hub.errors import HfHubHTTPError

    with hub_errors(f"{repo}: {file} at {revision:.12}"):
        if not is_cached(repo, file, revision, repo_type):
            # This request is not retried. Without it, the client would retry a failing download for half a minute.
            url = hf_hub_url(repo, file, revision=revision, repo_type=repo_type)
            try:
                get_hf_file_metadata(url, timeout=_ANSWER_SECONDS)
            except HfHubHTTPError as error:
                if error.response.status_code not in _TEMPORARY:
                    raise
        path = Path(hf_hub_download(repo, file, revision=revision, repo_type=repo_type))
    _check_published(path)
    return path


def is_cached(repo: str, file: str, revision: str, repo_type: RepoType) -> bool:
    """Return whether a file of a Hub repository at a commit is in the local cache."""
    from huggingface_hub import try_to_load_from_cache

    return isinstance(try_to_load_from_cache(repo, file, revision=revision, repo_type=repo_type), str)


def repo_info(repo: str, revision: str, repo_type: RepoType) -> RepoInfo:
    """Look up a repository on the Hub.

    Args:
        revision: A commit, a branch or a tag; "" for the default branch.

    Raises:
        UserError: The Hub does not have the repository, or does not answer with a commit.
    """
    from huggingface_hub import HfApi

    subject = f"{repo} at {revision}" if revision else repo
    with hub_errors(subject):
        info = HfApi().repo_info(repo, revision=revision or None, repo_type=repo_type, timeout=_ANSWER_SECONDS)
        commit = info.sha or ""
        if not re.fullmatch("[0-9a-f]{40}", commit):
            raise ValueError("the Hub's answer has no commit")
    files = info.siblings or []  # type: ignore[union-attr]  # Only kernels, which are another type, have none.
    return RepoInfo(info.id, commit, [file.rfilename for file in files])


def pin_dataset(dataset: str) -> str:
    """Look up the newest commit of a dataset on the Hub, or of its branch or tag, and return `name@commit`.

    Args:
        dataset: The name, such as `dair-ai/emotion`, or `name@branch`.
    """
    name, _, revision = dataset.partition("@")
    info = repo_info(name, revision, "dataset")
    return f"{info.name}@{info.commit}"


@contextmanager
def hub_errors(subject: str) -> Iterator[None]:
    """Turn any error of the Hub's client into UserError with a one-line message."""
    from huggingface_hub.errors import HfHubHTTPError

    try:
        yield
    except (UserError, PermissionError):  # The cache cannot be read or written.
        raise
    except HfHubHTTPError as error:
        answer = f"{error.response.status_code} {error.response.reason_phrase}"
        remedy = _REMEDIES.get(error.response.status_code, _CHECK)
        raise UserError(f"{subject}: the Hub answered {answer}. {remedy} {_MIRRORS}") from None
    except Exception as error:  # The client does not wrap the errors of its HTTP library.
        raise UserError(f"{subject}: {describe_error(error)}. {_CHECK} {_MIRRORS}") from None


def describe_error(error: BaseException) -> str:
    """Return the message of an exception on one line, without its final period, or its type if it has no message."""
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__


def _check_published(path: Path) -> None:
    """Raise UserError if a file does not match its name in the Hub's cache.

    The name is the file's sha256, or for small files Git's sha1.
    """
    # Only the first link has this name. It may lead to a second one, whose name is the file's Xet hash.
    published = path.readlink().name if path.is_symlink() else path.name
    if re.fullmatch("[0-9a-f]{64}", published):
        digest = file_sha256(path)
    elif re.fullmatch("[0-9a-f]{40}", published):
        content = path.read_bytes()
        digest = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
    else:
        return  # The cache does not use links, or the server does not publish hashes.
    if digest != published:
        path.resolve().unlink()  # The file itself. If only the links were removed, the client would use it again.
        raise UserError(
            f"{path} is not the file that the Hub published (its hash starts with {digest:.12}), so it was removed. "
            "Run the command again."
        )
