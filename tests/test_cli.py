"""Every command: `--help` without heavy imports, errors in one line, and the different ways to start it."""

import re
import signal
import subprocess
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest
import yaml
from conftest import ROOT, TinyMaker, params_file, run_python

from pipeline.core.messages import UserError

DVC = yaml.safe_load((ROOT / "dvc.yaml").read_text())
STAGES = [stage["cmd"].rpartition(" pipeline.")[2] for stage in DVC["stages"].values()]


CLOSED_PROXY = "http://127.0.0.1:9"  # The discard port rejects connections at once, so no test reaches the internet.


def run(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return run_python(*command, cwd=cwd, https_proxy=CLOSED_PROXY)


HELP = """
import runpy, sys
for stage in sys.argv[1:]:
    sys.argv = [stage, "--help"]
    sys.modules.pop("pipeline.cli", None)  # it reads the name of the command when it is imported
    try:
        runpy.run_module(f"pipeline.{stage}", run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        assert not ended.code
    print("=" * 9)
print(*sys.modules)
"""


def test_help_describes_each_stage_without_heavy_imports(tmp_path: Path) -> None:
    done = run("-c", HELP, *STAGES, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    *pages, modules = done.stdout.split("=" * 9 + "\n")
    for stage, page in zip(STAGES, pages, strict=True):
        assert re.match(r"usage: .*\n\n[A-Z].*\.\n\"dvc repro\" runs this stage", page)
        assert f"python -m pipeline.{stage}" in page
    assert not {"altair", "datasets", "sklearn", "torch", "transformers"} & set(modules.split())


# The stage that writes the first input which a stage looks for.
PRODUCERS = {
    "baseline": "download", "tokenize_data": "pretrained", "train": "pretrained", "predict": "train",
    "evaluate": "predict", "report": "download",
}  # fmt: skip


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_without_its_input_raises_a_one_line_error_and_writes_nothing(
    stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    params_file(tmp_path, {"data.task": "mrpc"})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("https_proxy", CLOSED_PROXY)
    with pytest.raises(UserError) as error:
        import_module(f"pipeline.{stage}").main()
    if stage in PRODUCERS:
        assert f'is missing. Run "dvc repro {PRODUCERS[stage]}".' in str(error.value)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["params.yaml"]


def test_errors_and_log_messages_are_one_printable_line_each(tmp_path: Path) -> None:
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
    logged, lost, *traceback, error = done.stderr.split("\n")[:-1]
    assert [line[:10] for line in (logged, lost, error)] == ["of a branc", "error: los", "error: a b"]
    assert all(line.isprintable() for line in (logged, lost, error))
    assert traceback[0].startswith("Traceback"), "a logged exception keeps its traceback"


@pytest.mark.parametrize(
    ("exception", "stderr"),
    [
        ("ZeroDivisionError('a bug')", r"Traceback .*\nZeroDivisionError: a bug\n"),
        # Setting the priority of a process can raise this error, which has nothing to do with files.
        ("PermissionError(1, 'Not permitted')", r"Traceback .*\nPermissionError: \[Errno 1\] Not permitted\n"),
        (
            "PermissionError(13, 'Permission denied', 'config.json')",
            r"error: config\.json: Permission denied\. Change its permissions\.\n",
        ),
    ],
)
def test_a_bug_keeps_its_traceback_and_an_unreadable_file_is_reported_in_one_line(
    exception: str, stderr: str, tmp_path: Path
) -> None:
    (tmp_path / "failing.py").write_text(f"from pipeline.cli import run\ndef main(): raise {exception}\nrun(main)")
    done = run("-m", "failing", cwd=tmp_path)
    assert done.returncode == 1
    assert re.fullmatch(stderr, done.stderr, re.S)


SWALLOWING = """
import os, signal, sys, time, weakref
from pathlib import Path

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup makes its child processes ignore it
from pipeline.cli import run

seconds = int(sys.argv.pop())

class Target:
    pass

def main():
    reference = weakref.ref(target := Target(), lambda _: os.kill(os.getpid(), signal.SIGHUP))
    del target
    Path("swallowed").touch()
    time.sleep(seconds)
    Path("done").touch()

run(main)
"""


@pytest.mark.parametrize("seconds", [0, 8])
def test_a_signal_that_python_swallows_still_ends_the_command(seconds: int, tmp_path: Path) -> None:
    """Python ignores an exception in the callback of a weak reference."""
    (tmp_path / "swallowing.py").write_text(SWALLOWING)
    done = run("-m", "swallowing", str(seconds), cwd=tmp_path)
    assert done.returncode == 128 + signal.SIGHUP, done.stderr
    assert (tmp_path / "swallowed").exists(), "the signal must arrive and be swallowed"
    assert (tmp_path / "done").exists() == (seconds == 0)


def test_a_stage_run_as_a_script_reports_errors_in_one_line(tmp_path: Path) -> None:
    params_file(tmp_path)
    done = run(str(ROOT / "pipeline" / "evaluate.py"), cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1, done.stderr


@pytest.mark.slow
def test_training_run_as_a_script_imports_the_evaluate_package(
    tiny: TinyMaker, tokenized: Callable[..., Path], tmp_path: Path
) -> None:
    """The script's directory, pipeline/, also has an evaluate.py."""
    for name, path in (("data/tokenized", tokenized(tiny())), ("models/pretrained", tiny())):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).symlink_to(path)
    params_file(tmp_path, {"train.max_train_samples": 32})
    done = run(str(ROOT / "pipeline" / "train.py"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "models" / "classifier" / "model.safetensors").exists()


def test_a_script_from_another_checkout_is_rejected(tmp_path: Path) -> None:
    script = tmp_path / "pipeline" / "report.py"
    script.parent.mkdir()
    for name in ("report.py", "cli.py"):
        (script.parent / name).write_bytes((ROOT / "pipeline" / name).read_bytes())
    done = run(str(script), cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert str(script.parent) in done.stderr
    assert "python -m" in done.stderr
    assert done.stderr.count("\n") == 1
