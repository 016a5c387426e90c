"""Fetch files from a mirror directory or the Hugging Face Hub, and verify their checksums."""

import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from pipeline.core.messages import UserError
from pipeline.core.paths import users_path

_ANSWER_SECONDS = 4  # so that without a network the error comes soon


class Unavailable(Exception):
    """A source does not have a file, or its file differs from the published one."""


def mirror(variable: str) -> Path | None:
    """Return the directory in an environment variable, None if it is not set. Raises UserError."""
    value = os.environ.get(variable)
    if not value:
        return None
    directory = users_path(value)
    if not directory.is_dir():
        raise UserError(f"{variable} is {value}, which is not a directory ({directory.absolute()})")
    return directory


def file_sha256(path: Path) -> str:
    """Return the sha256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def inside(directory: Path, name: str) -> Path:
    """Return the path of a file in a directory. Raises Unavailable if it is missing or a link out of the directory."""
    path = directory / name
    if not path.is_file():
        raise Unavailable(f"{path} is missing")
    if not path.resolve().is_relative_to(directory.resolve()):
        raise Unavailable(f"{path} leads out of {directory}, to {path.resolve()}; put the file itself there")
    return path


def copy(source: Path, target: Path, sha256: str | None) -> None:
    """Copy a file, and verify the copy's sha256 if it is known. Raises Unavailable."""
    shutil.copyfile(source, target)
    if sha256 and (digest := file_sha256(target)) != sha256:
        raise Unavailable(f"{source} is not the published file: its sha256 is {digest:.12}..., not {sha256:.12}...")


def not_fetched(subject: str, variable: str, content: str, error: Unavailable) -> UserError:
    """Return the error for something that no mirror has and that the Hub does not send."""
    mirrored = f"{variable} has no {content}" if mirror(variable) else f"{variable} is not set"
    return UserError(
        f"{subject} could not be fetched: {mirrored}; the Hub: {error}. Connect to a network, or set {variable} to a "
        f'directory with {content}, or run "make demo", which needs neither'
    )


def from_hub(repo: str, file: str, revision: str, repo_type: str) -> Path:
    """Download a file of a Hub repository at a commit into the Hub's cache, and return its path there.

    Raises:
        Unavailable: The Hub does not send the file. Without a network, this takes a few seconds.
    """
    from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url, try_to_load_from_cache

    with _hub_errors(f"{file} at {revision:.12}"):
        if not isinstance(try_to_load_from_cache(repo, file, revision=revision, repo_type=repo_type), str):
            # A request without retries. If it failed, the client would retry for half a minute.
            url = hf_hub_url(repo, file, revision=revision, repo_type=repo_type)
            get_hf_file_metadata(url, timeout=_ANSWER_SECONDS)
        path = Path(hf_hub_download(repo, file, revision=revision, repo_type=repo_type))
    _check_published(path)
    return path


class HubModel(NamedTuple):
    """A model's repository on the Hub at a commit. The name is the current one, even if it was renamed."""

    name: str
    commit: str
    files: list[str]


def hub_model(repo: str, revision: str | None) -> HubModel:
    """Ask the Hub for a model at a commit, a branch or a tag (None: its default branch). Raises Unavailable."""
    from huggingface_hub import HfApi

    model = f"{repo} at {revision}" if revision else repo
    with _hub_errors(model):
        info = HfApi().model_info(repo, revision=revision, timeout=_ANSWER_SECONDS)
    if not (re.fullmatch(r"[\w.-]+(/[\w.-]+)?", info.id) and re.fullmatch("[0-9a-f]{40}", info.sha or "")):
        raise Unavailable(f"{model}: the Hub's answer has no name or no commit")
    return HubModel(info.id, str(info.sha), [sibling.rfilename for sibling in info.siblings or []])


@contextmanager
def _hub_errors(subject: str) -> Iterator[None]:
    """Raise Unavailable with a one-line message for any error of the Hub's client."""
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    try:
        yield
    except OfflineModeIsEnabled:
        raise Unavailable(f"{subject}: HF_HUB_OFFLINE is set") from None
    except HfHubHTTPError as error:
        answer = f"{error.response.status_code} {error.response.reason_phrase}"
        if error.response.status_code == 401:  # also for a repository that does not exist
            answer += "; check the name, or run hf auth login"
        raise Unavailable(f"{subject}: the Hub answered {answer}") from None
    except Exception as error:  # the client lets its HTTP library's own errors through
        raise Unavailable(f"{subject}: {' '.join(str(error).split()) or type(error).__name__}") from None


def _check_published(path: Path) -> None:
    """Verify a file against the hash by which the Hub's cache names it: sha256, or git's sha1 for small files."""
    published = path.resolve().name
    if re.fullmatch("[0-9a-f]{64}", published):
        digest = file_sha256(path)
    elif re.fullmatch("[0-9a-f]{40}", published):
        content = path.read_bytes()
        digest = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
    else:
        return  # a cache without links, or a server that publishes no hashes
    if digest != published:
        raise Unavailable(f"{path} is not what the Hub published: its hash is {digest:.12}...; delete it and try again")
