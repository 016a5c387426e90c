"""Predict the score with all rows from learning curves up to half of them, and compare it with the measured score.

    PYTHONPATH=. python benchmarks/learning_curves.py --tasks sst2 cola stsb rte mrpc --clone ../curves

For each GLUE task, `pipeline.learning_curve` trains MiniLM on five sizes with three seeds, in the clone. Finished runs
there are not repeated.
"""

import argparse
import csv
import subprocess
from contextlib import chdir
from pathlib import Path

import numpy as np
import yaml

from benchmarks.bench import MINILM, ROOT, commit_data
from pipeline.cli import as_command
from pipeline.evaluation.intervals import jackknife
from pipeline.evaluation.metrics import METRICS, Floats
from pipeline.experiments.groups import run_sizes
from pipeline.experiments.learning_curves import MIN_SIZES, plausible_curves, predicted_errors
from pipeline.params import load_params
from pipeline.sources.loading import load_corpus

MAX_ROWS = 16_000
POINTS, SEEDS = 5, 3
CLASSES = "single_label_classification"
PAIR = ["sentence1", "sentence2"]
TASKS = {
    "sst2": (["sentence"], CLASSES, "accuracy"),
    "cola": (["sentence"], CLASSES, "matthews_correlation"),
    "stsb": (PAIR, "regression", "pearson"),
    "rte": (PAIR, CLASSES, "accuracy"),
    "mrpc": (PAIR, CLASSES, "accuracy"),
}
TRAIN = {"lr": 1e-4, "batch_size": 8, "epochs": 3, "keep": "last", "metric_for_best_model": None}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--clone", type=Path, required=True, help="a directory outside this repository")
    parser.add_argument("--threads", type=int, help="train.num_threads (default: all)")
    arguments = parser.parse_args()
    if not arguments.clone.exists():
        make_clone(arguments.clone)
    with as_command(), chdir(arguments.clone):  # as_command shows the progress of the runs.
        coverage: dict[str, list[bool]] = {"one run": [], "mean of the runs": []}
        for task in arguments.tasks:
            for name, values in measure(task, arguments.threads).items():
                coverage[name] += values
        for name, values in coverage.items():
            print(f"all tasks, {name}: {sum(values)} of {len(values)} scores are inside (target: 80%)")


def make_clone(clone: Path) -> None:
    """Clone HEAD, and commit up to MAX_ROWS rows of train and of validation of each task as custom files."""
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    for task, (columns, _, _) in TASKS.items():
        corpus = load_corpus(load_params().data.model_copy(update={"task": task}))
        directory = clone / "data" / task
        directory.mkdir()
        for split in ("train", "validation"):
            rows = corpus.splits[split][[*columns, "label"]]
            rows = rows.sample(min(len(rows), MAX_ROWS), random_state=0)
            rows.to_csv(directory / f"{split}.csv", index=False, quoting=csv.QUOTE_NONNUMERIC)
    commit_data(clone)


def measure(task: str, threads: int | None) -> dict[str, list[bool]]:
    """Run a learning curve, and print the scores and the intervals for the score with all rows.

    Returns:
        Whether each measured score is inside its interval, for single runs and for their mean.
    """
    columns, problem_type, metric = TASKS[task]
    params = yaml.safe_load(Path("params.yaml").read_text())
    params["data"] |= {
        "task": "custom",
        "name": None,
        "directory": f"data/{task}",
        "text_column_names": columns,
        "problem_type": problem_type,
        "on_leakage": "drop",
    }
    params["data"]["split"]["fractions"] = [0.9, 0.1, 0]  # no test split, which would be taken from train
    params["model"]["checkpoint"] = MINILM
    params["train"] |= TRAIN | {"num_threads": threads}
    params["evaluate"]["metrics"] = [metric]
    Path("params.yaml").write_text(yaml.safe_dump(params, sort_keys=False))
    subprocess.run(["dvc", "repro", "download"], check=True)  # The sizes follow from the number of rows there.
    sides = run_sizes(POINTS, SEEDS, [], jobs=1)
    scores: dict[int, Floats] = {
        size: np.array([jackknife(metric, run.predictions["validation"]) for run in side.runs])
        for size, side in sides.items()
        if not side.warnings("validation")
    }
    rows = max(sides)
    print(f"{task}, {METRICS[metric].title}: " + ", ".join(f"{n} {100 * scores[n][:, 0].mean():.1f}" for n in scores))
    if rows not in scores or len(scores) <= MIN_SIZES:
        print(f"{task}: too many degenerate sizes")
        return {}
    full = scores.pop(rows)[:, 0]
    errors = 1 - np.array(list(scores.values()))
    predicted = 1 - predicted_errors(plausible_curves(np.array(list(scores)) / max(scores), errors), rows / max(scores))
    # The score of a single run also depends on its seed.
    noise = np.random.default_rng(0).standard_normal(len(predicted))
    deviation = np.sqrt(errors[..., 0].var(axis=1, ddof=1).mean())
    coverage: dict[str, list[bool]] = {}
    for name, values, measured in (
        ("one run", predicted + deviation * noise, full),
        ("mean of the runs", predicted + deviation / np.sqrt(SEEDS) * noise, full.mean(keepdims=True)),
    ):
        low, high = np.quantile(values, [0.1, 0.9])
        coverage[name] = ((low <= measured) & (measured <= high)).tolist()
        text = ", ".join(f"{100 * score:.1f}" for score in measured)
        count = sum(coverage[name])
        print(f"{task}, {name}: 80% interval {100 * low:.1f} to {100 * high:.1f}, measured {text} ({count} inside)")
    return coverage


if __name__ == "__main__":
    main()
