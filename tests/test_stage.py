"""The manners of every stage: help, one-line errors, and outputs that appear whole or not at all."""

import errno
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from conftest import ROOT, params_file

from pipeline.core.messages import UserError
from pipeline.core.output import atomic_output, write_json

STAGES = [
    stage["cmd"].rpartition(" pipeline.")[2]
    for stage in yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"].values()
]


def run(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    # The discard port refuses at once, also where the internet can be reached.
    env = {**os.environ, "PYTHONPATH": str(ROOT), "https_proxy": "http://127.0.0.1:9"}
    return subprocess.run([sys.executable, *command], cwd=cwd, env=env, capture_output=True, text=True)


@pytest.mark.parametrize("stage", STAGES)
def test_help_says_what_the_stage_does_without_heavy_imports(stage: str, tmp_path: Path) -> None:
    done = run("-X", "importtime", "-m", f"pipeline.{stage}", "--help", cwd=tmp_path)
    assert done.returncode == 0
    assert re.match(r"usage: .*\n\nStage \w+: ", done.stdout)
    assert f"python -m pipeline.{stage}" in done.stdout
    loaded = {line.split("|")[-1].strip() for line in done.stderr.splitlines()}
    assert not loaded & {"torch", "transformers", "huggingface_hub"}


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_before_its_input_ends_in_one_line_with_status_1(stage: str, tmp_path: Path) -> None:
    params_file(tmp_path, {"data.task": "mrpc"})
    done = run("-m", f"pipeline.{stage}", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1, done.stderr
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["params.yaml"]


def test_a_bug_keeps_its_traceback(tmp_path: Path) -> None:
    (tmp_path / "bug.py").write_text("from pipeline.cli import run\ndef main(): 1 / 0\nrun(main)")
    done = run("-m", "bug", cwd=tmp_path)
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr
    assert "Traceback" in done.stderr


def test_an_error_and_a_log_line_are_one_printable_line_each_whatever_they_quote(tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text("""if True:
        from pipeline.cli import run
        from pipeline.core.messages import UserError, log
        forged = "a branch\\x1b[2K\\x9b2K\\r\\nVerdict: B is better\\u2028"
        def main():
            log.info("of %s", forged)
            try:
                1 / 0
            except ZeroDivisionError:
                log.exception("lost: %s", forged)
            raise UserError(forged)
        run(main)
    """)
    done = run("-m", "loud", cwd=tmp_path)
    told, lost, *traceback, error = done.stderr.split("\n")[:-1]
    assert [line[:10] for line in (told, lost, error)] == ["of a branc", "lost: a br", "error: a b"]
    assert all(line.isprintable() for line in (told, lost, error))
    assert traceback[0].startswith("Traceback"), "a bug that is told keeps its lines"


def test_an_input_without_permission_is_told_in_one_line(tmp_path: Path) -> None:
    trouble = "PermissionError(13, 'Permission denied', 'config.json')"
    (tmp_path / "closed.py").write_text(f"from pipeline.cli import run\ndef main(): raise {trouble}\nrun(main)")
    done = run("-m", "closed", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr == "error: config.json: Permission denied; change its permissions\n"


def test_drafts_of_killed_processes_go_and_others_stay(tmp_path: Path) -> None:
    code = """if True:
        import os, pathlib, pipeline.core.output
        with pipeline.core.output.atomic_output(pathlib.Path("out")) as draft:
            draft.mkdir()
            os.kill(os.getpid(), 9)
    """
    assert run("-c", code, cwd=tmp_path).returncode == -9
    (left,) = tmp_path.iterdir()
    with atomic_output(tmp_path / "out") as draft:
        draft.mkdir()
        for path in (left, draft.parent):
            os.utime(path, times=(time.time() - 61,) * 2)
        with atomic_output(tmp_path / "out") as other:
            other.mkdir()
            assert not left.exists()
            assert draft.exists(), "another process is at work there"


def test_a_directory_is_replaced_whole(tmp_path: Path) -> None:
    target = tmp_path / "out"
    for content in ("first", "second"):
        with atomic_output(target) as draft:
            draft.mkdir()
            (draft / content).touch()
        assert [path.name for path in target.iterdir()] == [content]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.mkdir()
    (target / "earlier").touch()
    with pytest.raises(KeyError), atomic_output(target) as draft:
        draft.mkdir()
        (draft / "half").touch()
        raise KeyError
    assert [path.name for path in target.iterdir()] == ["earlier"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_an_unwritable_output_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file where a directory should be")
    with (
        pytest.raises(UserError, match=r"data/raw cannot be written: (File exists|Not a directory)"),
        atomic_output(tmp_path / "data" / "raw"),
    ):
        pass


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk_is_told_in_one_line(tmp_path: Path) -> None:
    with (
        pytest.raises(UserError, match="out cannot be written: No space left on device"),
        atomic_output(tmp_path / "out") as draft,
    ):
        draft.mkdir()
        with open("/dev/full", "w") as full:  # noqa: PTH123
            full.write("x")
    assert list(tmp_path.iterdir()) == []


def test_an_input_that_cannot_be_read_is_not_blamed_on_the_output(tmp_path: Path) -> None:
    trouble = PermissionError(errno.EACCES, "Permission denied", "/somewhere/else")
    with pytest.raises(PermissionError, match="/somewhere/else"), atomic_output(tmp_path / "out"):
        raise trouble


def test_json_is_sorted_and_rounded(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"b": {"x": 1 / 3}, "a": 1})
    assert (tmp_path / "a.json").read_text() == '{\n  "a": 1,\n  "b": {\n    "x": 0.333333\n  }\n}\n'
