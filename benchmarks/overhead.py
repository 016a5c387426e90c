"""Time `dvc repro` with nothing to do and after a change to evaluate.py.

    PYTHONPATH=. python benchmarks/overhead.py

A clone of HEAD first runs with the embedded corpus for one epoch. Then `dvc repro` runs with nothing to do, alternately
in the clone and in a toy repository with two stages that copy a file. The printed times are medians.
"""

import argparse
import os
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import yaml
from bench import MINILM, ROOT, clone, run_timed

TOY = {
    "stages": {
        "one": {"cmd": "cp input one", "deps": ["input"], "outs": ["one"]},
        "two": {"cmd": "cp one two", "deps": ["one"], "outs": ["two"]},
    }
}


def make_toy(root: Path) -> Path:
    """Make a DVC repository with two stages, and run them."""
    root.mkdir()
    (root / "input").write_text("content")
    (root / "dvc.yaml").write_text(yaml.safe_dump(TOY))
    for command in (["git", "init", "--quiet"], ["dvc", "init", "--quiet"], ["dvc", "repro"]):
        subprocess.run(command, cwd=root, check=True, capture_output=True)
    (root / ".dvc" / "config").write_text((ROOT / ".dvc" / "config").read_text())
    return root


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = range(parser.parse_args().rounds)
    env: dict[str, Any] = dict(os.environ)
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    params["data"]["task"], params["model"]["checkpoint"], params["train"]["epochs"] = "demo", MINILM, 1

    def seconds(command: list[str], cwd: Path) -> float:
        done = run_timed(command, cwd, env)
        return done.ended - done.began

    with tempfile.TemporaryDirectory(prefix="overhead ") as directory:
        project, toy = clone(Path(directory, "project"), params), make_toy(Path(directory, "toy"))
        seconds(["dvc", "repro"], project)
        idle = [(seconds(["dvc", "repro"], project), seconds(["dvc", "repro"], toy)) for _ in rounds]
        changed = []
        for number in rounds:
            with (project / "pipeline" / "evaluate.py").open("a") as module:
                module.write(f"# {number}\n")
            changed.append(seconds(["dvc", "repro"], project))
    project_median, toy_median = (statistics.median(column) for column in zip(*idle, strict=True))
    ratio = statistics.median(project_seconds / toy_seconds for project_seconds, toy_seconds in idle)
    print(f"nothing to do: {project_median:.2f} s, in the toy repository {toy_median:.2f} s, ratio {ratio:.2f}")
    print(f"after a change to evaluate.py: {statistics.median(changed):.2f} s")


if __name__ == "__main__":
    main()
