"""A file or a repository that the Hub does not send is reported in one line with the reason."""

import pytest
from hub import Hub

from pipeline.core.messages import UserError
from pipeline.sources.fetch import download_file, repo_info

REPO, COMMIT = "someone/tiny", "0123456789abcdef0123456789abcdef01234567"


def download() -> None:
    download_file(REPO, "config.json", COMMIT, "model")


def look_up() -> None:
    repo_info(REPO, COMMIT, "model")


@pytest.fixture
def hub(hub: Hub) -> Hub:
    hub.files[f"{REPO}/{COMMIT}/config.json"] = b"{}"
    return hub


@pytest.mark.parametrize(
    ("files", "reason"), [({}, "401 Unauthorized.*hf auth login"), ({f"{REPO}/other/config.json": b"{}"}, "404")]
)
def test_the_answer_of_the_hub_is_reported_in_one_line(files: dict[str, bytes], reason: str, hub: Hub) -> None:
    hub.files = files
    for request in (download, look_up):
        with pytest.raises(UserError, match=rf"^{REPO}.* the Hub answered {reason}.*\.$"):
            request()


def test_a_failing_connection_is_reported_in_one_line(monkeypatch: pytest.MonkeyPatch, hub: Hub) -> None:
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")  # rejects connections at once
    with pytest.raises(UserError, match="refused"):
        look_up()


def test_an_answer_without_a_valid_commit_is_an_error(hub: Hub) -> None:
    """Users paste the output of pin into a command, so it must not contain another command."""
    hub.branches[f"{REPO}/main"] = "main; rm -r ."
    hub.files = {f"{REPO}/main; rm -r ./config.json": b"{}"}
    with pytest.raises(UserError, match="no commit"):
        repo_info(REPO, "", "model")
