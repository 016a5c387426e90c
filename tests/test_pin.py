"""`python -m pipeline.pin`: asks a local server in the place of the Hub, by the Hub's real client."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT, TinyMaker
from hub import Hub, serve

MAIN, TAGGED = "0123456789abcdef0123456789abcdef01234567", "76543210fedcba9876543210fedcba9876543210"


@pytest.fixture
def hub(tiny: TinyMaker) -> Iterator[Hub]:
    with serve() as hub:
        for repo in ("someone/tiny", "google-bert/bert-base-uncased"):
            hub.add(repo, MAIN, tiny())
            hub.branches[f"{repo}/main"] = MAIN
        hub.add("someone/tiny", TAGGED, tiny())
        hub.branches["someone/tiny/v1/final"] = TAGGED
        yield hub


def pin(name: str, home: Path, hub: Hub, **env: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **hub.env(home), "PYTHONPATH": str(ROOT), **env}
    return subprocess.run(
        [sys.executable, "-m", "pipeline.pin", name], cwd=home, env=env, capture_output=True, text=True
    )


@pytest.mark.parametrize(
    ("name", "pinned"),
    [
        ("someone/tiny", f"someone/tiny@{MAIN}"),
        ("someone/tiny@v1/final", f"someone/tiny@{TAGGED}"),
        (f"someone/tiny@{TAGGED}", f"someone/tiny@{TAGGED}"),
        ("bert-base-uncased", f"google-bert/bert-base-uncased@{MAIN}"),
        ("an-earlier-name", f"someone/tiny@{MAIN}"),
    ],
)
def test_the_name_with_its_commit_is_all_that_goes_to_stdout(name: str, pinned: str, hub: Hub, tmp_path: Path) -> None:
    hub.renamed["an-earlier-name"] = "someone/tiny"
    done = pin(name, tmp_path, hub)
    assert (done.returncode, done.stdout) == (0, f"{pinned}\n"), done.stderr
    assert "model.safetensors" in done.stderr
    assert {request.split("/")[1] for request in hub.requests} == {"api"}, "no file is fetched"


@pytest.mark.parametrize(
    ("name", "status", "env", "message"),
    [
        ("someone/tiny@v2", None, {}, "someone/tiny at v2: the Hub answered 404"),
        ("someone/tiny", 401, {}, "the Hub answered 401 Unauthorized; check the name"),
        ("someone/tiny", None, {"HF_HUB_OFFLINE": "1"}, "HF_HUB_OFFLINE is set"),
        ("someone/tiny", None, {"HF_ENDPOINT": "http://127.0.0.1:9"}, "refused"),
        ("a name that is none", None, {}, "a name that is none"),
        ("./tiny", None, {}, "./tiny is a path"),
        ("a/b/c", None, {}, "a/b/c is a path"),
    ],
)
def test_what_cannot_be_pinned_ends_in_one_line(
    name: str, status: int | None, env: dict[str, str], message: str, hub: Hub, tmp_path: Path
) -> None:
    hub.status = status
    done = pin(name, tmp_path, hub, **env)
    assert (done.returncode, done.stdout) == (1, "")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr


def test_a_hub_that_does_not_answer_is_not_waited_for(hub: Hub, tmp_path: Path) -> None:
    hub.stall = 8
    done = pin("someone/tiny", tmp_path, hub)
    assert (done.returncode, done.stdout) == (1, "")
    assert "timed out" in done.stderr


@pytest.mark.parametrize(
    ("without", "added", "message"),
    [
        ("tokenizer.json", None, "someone/tiny has no tokenizer.json; only fast tokenizers are taken"),
        ("model.safetensors", None, "someone/tiny has no model.safetensors"),
        ("model.safetensors", "pytorch_model.bin", "someone/tiny has its weights only as pytorch_model.bin"),
    ],
)
def test_a_model_that_the_pretrained_stage_would_refuse_is_not_pinned(
    without: str, added: str | None, message: str, hub: Hub, tmp_path: Path
) -> None:
    del hub.files[f"someone/tiny/{MAIN}/{without}"]
    if added:
        hub.files[f"someone/tiny/{MAIN}/{added}"] = b"pickle"
    done = pin("someone/tiny", tmp_path, hub)
    assert (done.returncode, done.stdout) == (1, "")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_an_answer_that_is_no_commit_does_not_reach_stdout(hub: Hub, tmp_path: Path) -> None:
    """stdout is pasted into a command."""
    hub.branches["someone/tiny/main"] = "main; rm -r ."
    hub.files = {key.replace(MAIN, "main; rm -r ."): content for key, content in hub.files.items()}
    done = pin("someone/tiny", tmp_path, hub)
    assert (done.returncode, done.stdout) == (1, "")
    assert "no commit" in done.stderr
