"""Fetch files from a mirror directory, the Hugging Face Hub or the web, and verify their checksums."""

import hashlib
import os
import re
import shutil
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import NamedTuple, TypeVar

from pipeline.core.messages import UserError
from pipeline.core.paths import users_path

_ANSWER_SECONDS = 4  # for each of two sources: without a network, an error within 10 seconds
_BODY_SECONDS = 60  # for a file of a megabyte at most
_T = TypeVar("_T")


class Unavailable(Exception):
    """A source lacks a file, or its file differs from the published one; the next source may have it."""


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
    if sha256:
        _check(target, sha256, str(source))


def _check(path: Path, expected: str, origin: str) -> None:
    digest = file_sha256(path)
    if digest != expected:
        raise Unavailable(f"{origin} is not the published file: its sha256 is {digest[:12]}..., not {expected[:12]}...")


def from_web(url: str, target: Path, sha256: str, size: int) -> None:
    """Download `url` to `target`, at most `size` bytes, and verify its sha256. Raises Unavailable."""
    try:
        with _in_time(lambda: urllib.request.urlopen(url, timeout=_ANSWER_SECONDS)) as response:
            target.write_bytes(_in_time(lambda: response.read(size + 1), _BODY_SECONDS))
    except urllib.error.HTTPError as error:
        raise Unavailable(f"{url} answered {error.code} {' '.join(str(error.reason).split())}") from None
    except (OSError, HTTPException) as error:  # URLError, timeouts, resets, a body cut short
        raise Unavailable(f"{url}: {getattr(error, 'reason', error)}") from None
    _check(target, sha256, url)


def from_hub(repo: str, file: str, revision: str, repo_type: str) -> Path:
    """Download a file of a Hub repository at a commit into the Hub's cache, and return its path there.

    The cache names each file by the hash that the Hub published for it; the content is verified against that name.

    Raises:
        Unavailable: The Hub does not send the file. Without a network, this takes a few seconds.
    """
    from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url, try_to_load_from_cache

    with _hub_errors(f"{file} at {revision[:12]}"):
        if not isinstance(try_to_load_from_cache(repo, file, revision=revision, repo_type=repo_type), str):
            # A request without retries. If it failed, the client would retry for half a minute.
            url = hf_hub_url(repo, file, revision=revision, repo_type=repo_type)
            _in_time(lambda: get_hf_file_metadata(url, timeout=_ANSWER_SECONDS))
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
        info = _in_time(lambda: HfApi().model_info(repo, revision=revision, timeout=_ANSWER_SECONDS))
    if not (re.fullmatch(r"[\w.-]+(/[\w.-]+)?", info.id) and re.fullmatch("[0-9a-f]{40}", info.sha or "")):
        raise Unavailable(f"{model}: the Hub's answer has no name or no commit")
    return HubModel(info.id, str(info.sha), [sibling.rfilename for sibling in info.siblings or []])


@contextmanager
def _hub_errors(subject: str) -> Iterator[None]:
    """Raise Unavailable with a one-line message for any error of the Hub's client."""
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    meaning = {
        401: "no such repository, or not allowed: check the name, or run hf auth login",
        403: "not allowed",
        404: "not found",
        429: "too many requests",
    }
    try:
        yield
    except OfflineModeIsEnabled:
        raise Unavailable(f"{subject}: HF_HUB_OFFLINE is set") from None
    except HfHubHTTPError as error:
        status = error.response.status_code
        note = f" ({meaning[status]})" if status in meaning else ""
        raise Unavailable(f"{subject}: the Hub answered {status}{note}") from None
    except Exception as error:  # the client lets its HTTP library's own errors through
        raise Unavailable(f"{subject}: {' '.join(str(error).split()) or type(error).__name__}") from None


def _in_time(request: Callable[[], _T], seconds: float = _ANSWER_SECONDS) -> _T:
    """Return the result of `request`. Raises TimeoutError if that takes longer.

    A socket's timeout restarts with every byte, and DNS lookups have none.
    """
    outcome: Future[_T] = Future()

    def run() -> None:
        try:
            outcome.set_result(request())
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=run, daemon=True).start()  # a daemon does not keep the process alive
    try:
        return outcome.result(timeout=seconds)
    except TimeoutError:
        raise TimeoutError(f"timed out: no answer in {seconds} seconds") from None


def _check_published(path: Path) -> None:
    """Verify a file against the hash by which the Hub's cache names it: sha256, or git's sha1 for small files."""
    name = path.resolve().name
    if re.fullmatch("[0-9a-f]{64}", name):
        digest = file_sha256(path)
    elif re.fullmatch("[0-9a-f]{40}", name):
        content = path.read_bytes()
        digest = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
    else:
        return  # a cache without links, or a server that publishes no hashes
    if digest != name:
        raise Unavailable(
            f"{path} is not what the Hub published: its hash is {digest[:12]}...; delete it and try again"
        )
