"""Every command prints its help, a readable log and one-line errors, and ends with a status that says what happened."""

import re
import signal
from importlib import import_module
from pathlib import Path

import pytest
from conftest import params_file, run_python

from pipeline.core.messages import UserError
from pipeline.params import load_params


def run(tmp_path: Path, block: str) -> tuple[int, str]:
    """Run lines of Python as a command does, and return its exit status and what it printed to stderr."""
    indented = "\n".join(f"    {line.strip()}" for line in block.splitlines())
    (tmp_path / "command.py").write_text(f"from pipeline.cli import as_command, log\nwith as_command():\n{indented}\n")
    done = run_python("-m", "command", cwd=tmp_path)
    return done.returncode, done.stderr


def test_help_describes_a_stage_and_a_wrong_argument_has_status_2(tmp_path: Path) -> None:
    done = run_python("-m", "pipeline.check", "--help", cwd=tmp_path)
    assert done.returncode == 0
    assert re.match(r"usage: python -m pipeline\.check .*\n\n[A-Z].*\.\n", done.stdout)
    assert run_python("-m", "pipeline.check", "--lr", cwd=tmp_path).returncode == 2


def test_errors_and_log_messages_are_one_printable_line_each(tmp_path: Path) -> None:
    forged = r"a branch\x1b[2K\x9b2K\r\nVerdict: B is better\u2028"
    status, printed = run(
        tmp_path,
        f"""log.info("of %s", "{forged}")
        log.warning("about %s", "{forged}")
        from pipeline.core.messages import UserError
        raise UserError("{forged}")""",
    )
    assert status == 1
    assert [line[:15] for line in printed.split("\n")] == ["of a branch [2K", "warning: about ", "error: a branch", ""]
    assert all(line.isprintable() for line in printed.split("\n"))


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ("1 / 0", r"Traceback .*\nZeroDivisionError: division by zero\n"),
        ("open('config.json')", r"error: config\.json: No such file or directory\n"),
        ("open(300 * 'a')", r"error: a+: File name too long\n"),
    ],
)
def test_a_bug_keeps_its_traceback_and_an_error_about_a_file_is_one_line(
    block: str, expected: str, tmp_path: Path
) -> None:
    status, printed = run(tmp_path, block)
    assert status == 1
    assert re.fullmatch(expected, printed, re.S)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_command_with_its_own_status_and_removes_drafts(number: signal.Signals, tmp_path: Path) -> None:
    status, printed = run(
        tmp_path,
        f"""import os, pathlib, time
        from pipeline.core.output import atomic_output
        with atomic_output(pathlib.Path("out")) as draft: draft.touch(), os.kill(os.getpid(), {number}), time.sleep(60)
        """,
    )
    assert (status, printed) == (128 + number, "")
    assert not list(tmp_path.glob("*out*"))


@pytest.mark.parametrize("stage", ["baseline", "tokenize_data", "train", "predict", "evaluate", "report"])
def test_a_stage_without_its_input_says_what_to_run_and_writes_nothing(
    stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    params = params_file(tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r'is missing\. Run "dvc repro"'):
        import_module(f"pipeline.{stage}").main(load_params())
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [params]
