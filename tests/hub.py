"""A local replacement for the Hugging Face Hub, to which the real client talks."""

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote

import pytest


class Hub:
    """A server for models and datasets.

    Attributes:
        files: The content of each file, by "repo/revision/name". The repo of a dataset starts with "datasets/".
        branches: The commit of each branch, by "repo/branch". The default branch is main.
        requests: The method and path of every request so far.
        url: The address of the server.
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.branches: dict[str, str] = {}
        self.requests: list[str] = []
        self.url = ""

    def add(self, repo: str, revision: str, directory: Path) -> None:
        for path in directory.rglob("*"):
            if path.is_file():
                self.files[f"{repo}/{revision}/{path.relative_to(directory)}"] = path.read_bytes()

    def connect(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Point the client in this process to this server, with an empty cache."""
        import datasets
        from huggingface_hub import HfFileSystem, close_session, constants

        close_session()  # The client keeps connections open, even to the server of an earlier test.
        HfFileSystem.clear_instance_cache()  # An earlier server may have had the same port, but other files.
        monkeypatch.setattr(constants, "ENDPOINT", self.url)
        url_template = self.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", url_template)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(home / "cache"))
        monkeypatch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 1)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", True)
        monkeypatch.setattr(datasets.config, "HF_ENDPOINT", self.url)
        monkeypatch.setattr(
            datasets.config, "HUB_DATASETS_URL", self.url + "/datasets/{repo_id}/resolve/{revision}/{path}"
        )
        monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", home / "datasets")
        monkeypatch.setattr(datasets.config, "DOWNLOADED_DATASETS_PATH", home / "datasets/downloads")


def _entries(sizes: dict[str, int], folder: str, recursive: bool) -> list[dict[str, Any]]:
    """Return the files and directories in a directory of a repository, as the Hub lists them."""
    paths = [name.removeprefix(folder) for name in sizes if name.startswith(folder)]
    directories = {str(parent) for path in paths for parent in PurePosixPath(path).parents} - {"."}
    entries: list[dict[str, Any]] = [{"type": "file", "path": path, "size": sizes[folder + path]} for path in paths]
    entries += ({"type": "directory", "path": path} for path in sorted(directories))
    entries = [{**entry, "path": folder + entry["path"], "oid": "0" * 40} for entry in entries]
    return entries if recursive else [entry for entry in entries if "/" not in entry["path"].removeprefix(folder)]


@contextmanager
def serve() -> Iterator[Hub]:
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            hub.requests.append(f"{self.command} {self.path}")
            path = self.path.split("?")[0].lstrip("/")
            if path.startswith(("api/models/", "api/datasets/")):
                self.describe(path.removeprefix("api/").removeprefix("models/"))
            elif "/resolve/" in path:
                self.send_file(*path.split("/resolve/", maxsplit=1))
            else:
                self.reply(404, b"", {})

        do_HEAD = do_GET

        def send_file(self, repo: str, path: str) -> None:
            commit, content = path.split("/")[0], hub.files.get(f"{repo}/{path}")
            if content is None:
                return self.miss(repo, commit)
            etag = hashlib.sha256(content).hexdigest()
            self.reply(200, content, {"ETag": f'"{etag}"', "X-Repo-Commit": commit})

        def miss(self, repo: str, commit: str) -> None:
            """Reply that a file, a commit or a repository does not exist."""
            if any(key.startswith(f"{repo}/{commit}/") for key in hub.files):
                self.reply(404, b"", {"X-Error-Code": "EntryNotFound"})
            elif any(key.startswith(f"{repo}/") for key in hub.files):
                self.reply(404, b"", {"X-Error-Code": "RevisionNotFound"})
            else:  # The Hub does not say whether it is private.
                self.reply(401, b"", {"X-Error-Message": "Invalid username or password."})

        def describe(self, path: str) -> None:
            """Reply with the commit and the files of a repository, or with the entries of one of its directories."""
            repo, action, rest = re.fullmatch("(.+?)(?:/(revision|tree)/(.+))?", path).groups("")  # type: ignore[union-attr]
            branch, _, folder = (rest or "main").partition("/") if action == "tree" else (rest or "main", "", "")
            branch = unquote(branch)
            commit = hub.branches.get(f"{repo}/{branch}", branch)
            start = f"{repo}/{commit}/"
            sizes = {key.removeprefix(start): len(hub.files[key]) for key in hub.files if key.startswith(start)}
            content: Any = {"id": repo.removeprefix("datasets/"), "sha": commit}
            content["siblings"] = [{"rfilename": name} for name in sizes]
            if action == "tree":
                content = _entries(
                    sizes, f"{unquote(folder)}/" if folder else "", "recursive=true" in self.path.lower()
                )
            if not sizes or not content:
                return self.miss(repo, commit)
            self.reply(200, json.dumps(content).encode(), {"Content-Type": "application/json"})

        def reply(self, status: int, content: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
