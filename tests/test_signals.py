"""A command that gets a signal at a random moment, often during its start, ends soon and not with status 0."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ROOT, TinyMaker, contents, params_file

from pipeline.experiments.child_processes import forwarding_signals

OUTPUTS = {
    "check": "data/params_checked",
    "download": "data/raw",
    "baseline": "data/baseline",
    "tokenize_data": "data/tokenized",
    "train": "models/classifier",
    "predict": "data/predictions",
    "evaluate": "metrics/evaluation.json",
    "classify --file new.csv --out answers.csv": "answers.csv",
}
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


def restore_signal_handlers() -> None:
    """Restore the default handlers, because under nohup or in a shell's background job, some signals are ignored."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)


def test_a_child_process_that_starts_after_a_signal_is_interrupted() -> None:
    with pytest.raises(SystemExit), forwarding_signals() as children:
        children.forward(signal.SIGTERM, None)
        assert children.start(["sleep", "60"]).wait() == -signal.SIGINT


@pytest.mark.slow
def test_a_command_that_gets_a_signal_ends_soon_and_leaves_nothing_that_looks_complete(
    tiny: TinyMaker, tokenized: Callable[..., Path], raw: Path, tmp_path: Path
) -> None:
    checkpoint = tiny()
    shutil.copytree(raw, tmp_path / "data" / "raw")
    shutil.copytree(tokenized(checkpoint), tmp_path / "data" / "tokenized")
    shutil.copytree(checkpoint, tmp_path / "models" / "pretrained")
    params_file(tmp_path, {"model.checkpoint": checkpoint, "train.epochs": 2})
    # No outputs of evaluate are declared here, because check would remove them.
    (tmp_path / "dvc.yaml").write_text("stages: {evaluate: {metrics: [], plots: []}}\n")
    (tmp_path / "new.csv").write_text("sentence1,sentence2\n" + "One is two.,Two is one.\n" * 50)

    def start(command: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", *f"pipeline.{command}".split()], cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE, text=True,
            preexec_fn=restore_signal_handlers,
        )  # fmt: skip

    seconds = {}
    for command in OUTPUTS:
        began = time.monotonic()
        with start(command) as process:
            error = process.communicate()[1]
        assert process.returncode == 0, error
        seconds[command] = time.monotonic() - began
    rng, interrupted = random.Random(0), 0
    for command, output in [*OUTPUTS.items()] * 2:
        out, complete = tmp_path / output, tmp_path / "complete"
        out.rename(complete)
        with start(command) as process:
            time.sleep(rng.uniform(0, 0.8 * seconds[command]))  # a signal at the very end cannot change the status
            had_ended = process.poll() is not None
            process.send_signal(rng.choice(SIGNALS))
            sent = time.monotonic()
            error = process.communicate()[1]
            took = time.monotonic() - sent
        case = f"{command}: status {process.returncode} after {took:.1f} s: {error}"
        # A command that has done its work may end before the signal reaches it.
        assert had_ended or process.returncode or took < 0.2, case
        assert took < 10, case
        if out.exists():
            assert contents(out) == contents(complete), case
            shutil.rmtree(out) if out.is_dir() else out.unlink()
        complete.rename(out)
        interrupted += not had_ended
    assert interrupted > len(OUTPUTS)
