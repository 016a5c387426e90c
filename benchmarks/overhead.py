"""The pipeline's overhead: nothing to do, a change to evaluate.py, `--help`.

    PYTHONPATH=. python benchmarks/overhead.py

A clone of HEAD runs once, on the embedded corpus for one epoch. Then `dvc repro` runs with nothing to do, alternately
there and in a toy repository of two stages that copy a file. Medians.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml
from bench import MINILM, ROOT, clone, timed

TOY = {
    "stages": {
        "one": {"cmd": "cp input one", "deps": ["input"], "outs": ["one"]},
        "two": {"cmd": "cp one two", "deps": ["one"], "outs": ["two"]},
    }
}


def toy(root: Path) -> Path:
    """A DVC repository of two stages that have run."""
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
        took = timed(command, cwd, env)
        return took.ended - took.began

    with tempfile.TemporaryDirectory(prefix="overhead ") as directory:
        project, simple = clone(Path(directory, "project"), params), toy(Path(directory, "toy"))
        seconds(["dvc", "repro"], project)
        idle = [(seconds(["dvc", "repro"], project), seconds(["dvc", "repro"], simple)) for _ in rounds]
        changed = []
        for number in rounds:
            with (project / "pipeline" / "evaluate.py").open("a") as module:
                module.write(f"# {number}\n")
            changed.append(seconds(["dvc", "repro"], project))
        stages = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
        modules = {name: stage["cmd"].split()[-1] for name, stage in stages.items()}
        helped = {
            name: statistics.median(seconds([sys.executable, "-m", module, "--help"], project) for _ in rounds)
            for name, module in modules.items()
        }
    ours, theirs = (statistics.median(column) for column in zip(*idle, strict=True))
    ratio = statistics.median(project_seconds / toy_seconds for project_seconds, toy_seconds in idle)
    print(f"nothing to do: {ours:.2f} s, the toy {theirs:.2f} s, ratio {ratio:.2f}")
    print(f"a change to evaluate.py: {statistics.median(changed):.2f} s")
    print("--help: " + ", ".join(f"{stage} {took:.2f} s" for stage, took in helped.items()))


if __name__ == "__main__":
    main()
