"""Fetch files from a mirror directory or the Hugging Face Hub, and verify their checksums."""

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pipeline.core.messages import UserError
from pipeline.core.paths import users_path

if TYPE_CHECKING:
    from huggingface_hub import Discussion
    from huggingface_hub.hf_api import DatasetInfo, ModelInfo

    _Info = TypeVar("_Info", ModelInfo, DatasetInfo)

_CONVERSION_BOT = "SFconvertbot"  # transformers also takes safetensors from the pull requests of this account only.
_ANSWER_SECONDS = 4  # short, so that a missing network is reported soon


class Unavailable(Exception):
    """A source does not have a file, or its file differs from the published one."""


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
    """Return the path of a file in a directory. Raises Unavailable if it is missing."""
    path = directory / name
    if not path.is_file():
        raise Unavailable(f"{path} is missing")
    return path


def copy_verified(source: Path, target: Path, sha256: str | None) -> None:
    """Copy a file. Raises Unavailable if its sha256 is known and the file has a different one."""
    if sha256:
        require_sha256(source, sha256)
    shutil.copyfile(source, target)


def require_sha256(path: Path, sha256: str) -> None:
    """Raise Unavailable if a file has a different sha256."""
    digest = file_sha256(path)
    if digest != sha256:
        raise Unavailable(f"{path} is not the published file: its sha256 starts with {digest:.12}, not {sha256:.12}")


def not_fetched(subject: str, variable: str, content: str, error: Unavailable) -> UserError:
    """Return the error for files that neither a mirror nor the Hub provides.

    Args:
        subject: What could not be fetched.
        variable: The environment variable that names the mirror.
        content: The files that the mirror would need.
    """
    mirrored = f"{variable} has no {content}" if mirror_directory(variable) else f"{variable} is not set"
    return UserError(
        f"{subject} could not be fetched: {mirrored}, and the download from the Hub failed: {error}. Connect to a "
        f'network, set {variable} to a directory with {content}, or run "make demo", which needs neither.'
    )


def download_file(repo: str, file: str, revision: str, repo_type: str) -> Path:
    """Download a file of a Hub repository at a commit to the local cache, and return its path there.

    Raises:
        Unavailable: The Hub does not send the file. Without a network, this takes a few seconds.
    """
    from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url, try_to_load_from_cache

    with _hub_errors(f"{file} at {revision:.12}"):
        if not isinstance(try_to_load_from_cache(repo, file, revision=revision, repo_type=repo_type), str):
            # This request is not retried. Without it, the client would retry a failing download for half a minute.
            url = hf_hub_url(repo, file, revision=revision, repo_type=repo_type)
            get_hf_file_metadata(url, timeout=_ANSWER_SECONDS)
        path = Path(hf_hub_download(repo, file, revision=revision, repo_type=repo_type))
    _check_published(path)
    return path


def hub_model(repo: str, revision: str | None) -> "ModelInfo":
    """Look up a model on the Hub. The result has its current name, even if `repo` is an earlier one.

    Args:
        revision: A commit, a branch or a tag; None for the default branch.

    Raises:
        Unavailable: The Hub does not have the model, or does not answer with a commit.
    """
    from huggingface_hub import HfApi

    return _look_up(HfApi().model_info, repo, revision)


def hub_dataset(repo: str, revision: str | None) -> "DatasetInfo":
    """Look up a dataset on the Hub. The arguments and errors are those of `hub_model`."""
    from huggingface_hub import HfApi

    return _look_up(HfApi().dataset_info, repo, revision)


def _look_up(request: "Callable[..., _Info]", repo: str, revision: str | None) -> "_Info":
    subject = f"{repo} at {revision}" if revision else repo
    with _hub_errors(subject):
        info = request(repo, revision=revision, timeout=_ANSWER_SECONDS)
    if not re.fullmatch("[0-9a-f]{40}", info.sha or ""):
        raise Unavailable(f"{subject}: the Hub's answer has no commit")
    return info


def pin_dataset(dataset: str) -> str:
    """Look up the newest commit of a dataset on the Hub, or of its branch or tag, and return `name@commit`.

    Args:
        dataset: The name, such as `dair-ai/emotion`, or `name@branch`.

    Raises:
        UserError: The Hub does not know the dataset, or does not answer.
    """
    name, _, revision = dataset.partition("@")
    try:
        info = hub_dataset(name, revision or None)
    except Unavailable as error:
        raise UserError(f"{error}. Check that this machine can reach the Hub, and that the name is right.") from None
    return f"{info.id}@{info.sha}"


def conversions(repo: str) -> "list[Discussion]":
    """Return the open pull requests of the bot that converts weights to safetensors, the newest first.

    Anyone can open a pull request, so those of other accounts are left out.

    Raises:
        Unavailable: The Hub does not list the pull requests of the model.
    """
    from huggingface_hub import HfApi

    with _hub_errors(f"the pull requests of {repo}"):
        listed = HfApi().get_repo_discussions(
            repo, author=_CONVERSION_BOT, discussion_type="pull_request", discussion_status="open"
        )
        # The filters apply on the server. Do not rely on them for the author, who decides whether we trust the files.
        pull_requests = [pull_request for pull_request in listed if pull_request.author == _CONVERSION_BOT]
    return sorted(pull_requests, key=lambda pull_request: pull_request.num, reverse=True)


@contextmanager
def _hub_errors(subject: str) -> Iterator[None]:
    """Turn any error of the Hub's client into Unavailable with a one-line message."""
    from huggingface_hub.errors import HfHubHTTPError

    try:
        yield
    except HfHubHTTPError as error:
        answer = f"{error.response.status_code} {error.response.reason_phrase}"
        if error.response.status_code == 401:  # The Hub also sends 401 if the repository does not exist.
            answer += ' (check the name, or run "hf auth login")'
        raise Unavailable(f"{subject}: the Hub answered {answer}") from None
    except Exception as error:  # The client does not wrap the errors of its HTTP library.
        reason = " ".join(str(error).split()).rstrip(".")
        raise Unavailable(f"{subject}: {reason or type(error).__name__}") from None


def _check_published(path: Path) -> None:
    """Raise Unavailable if a file does not match its name in the Hub's cache.

    The name is the file's sha256, or for small files Git's sha1.
    """
    published = path.resolve().name
    if re.fullmatch("[0-9a-f]{64}", published):
        digest = file_sha256(path)
    elif re.fullmatch("[0-9a-f]{40}", published):
        content = path.read_bytes()
        digest = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
    else:
        return  # The cache does not use links, or the server does not publish hashes.
    if digest != published:
        raise Unavailable(
            f"{path} is not the file that the Hub published: its hash starts with {digest:.12}. Delete it and try again"
        )
