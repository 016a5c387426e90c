"""Find labels that were flipped at random, and compare the ranking of `pipeline.suspects` with other rankings.

    PYTHONPATH=. python benchmarks/label_errors.py --tasks sst2 cola rte demo --seeds 1 2 3

Each run flips 5% of the labels of `--rows` rows of train (fewer if the corpus is smaller), and cross-validates MiniLM
with five folds in a temporary clone. The result of a task and a seed is kept in the file `--out`, and not measured
again, so use another file for other settings.
"""

import argparse
import csv
import json
import subprocess
import tempfile
from contextlib import chdir
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from cleanlab.rank import get_label_quality_scores
from sklearn.metrics import average_precision_score

from benchmarks.bench import MINILM, ROOT, commit_data
from pipeline.core.dataset_files import load_examples
from pipeline.core.paths import CLASSIFIER, TOKENIZED
from pipeline.modeling.device import Device
from pipeline.modeling.loading import load_fine_tuned_model
from pipeline.modeling.outputs import losses
from pipeline.modeling.scoring import predict_logits, scoring_trainer
from pipeline.modeling.tokenization import load_tokenizer
from pipeline.params import load_params
from pipeline.sources.loading import load_corpus

FLIPPED = 0.05
SETTINGS = {
    "data.task": "custom",
    "data.name": "null",
    "data.problem_type": "single_label_classification",
    "data.split.fractions": "[0.9,0.1,0]",
    "model.checkpoint": MINILM,
    "train.metric_for_best_model": "null",
    "evaluate.metrics": "null",
}
LEARNING_RATES = {"demo": "1e-4", "cola": "1e-4", "rte": "1e-4"}
EPOCHS = {"demo": "6", "cola": "6", "rte": "6"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=["sst2", "cola", "rte", "demo"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--epochs", help="(default: 3 for sst2, otherwise 6)")
    parser.add_argument("--threads", default="null", help="train.num_threads (default: all)")
    parser.add_argument("--out", type=Path, default=Path("label_errors.json"))
    arguments = parser.parse_args()
    results: dict[str, Any] = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
    for seed in arguments.seeds:
        for task in arguments.tasks:
            if f"{task}-{seed}" not in results:
                with tempfile.TemporaryDirectory() as scratch:
                    results[f"{task}-{seed}"] = measure(
                        Path(scratch, "clone"),
                        task,
                        seed,
                        arguments.rows,
                        {
                            "train.num_threads": arguments.threads,
                            "train.lr": LEARNING_RATES.get(task, "5e-5"),
                            "train.epochs": arguments.epochs or EPOCHS.get(task, "3"),
                        },
                    )
                arguments.out.write_text(json.dumps(results, indent=1))
            print(f"{task}, seed {seed}: {json.dumps(results[f'{task}-{seed}'])}", flush=True)
    print(table(results, arguments.tasks))


def measure(clone: Path, task: str, seed: int, size: int, settings: dict[str, str]) -> dict[str, Any]:
    """Flip labels, rank the rows, and return the scores of each ranking.

    Args:
        size: The number of rows.
    """
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    columns, rows = labeled_rows(task)
    random = np.random.default_rng(seed)
    rows = [rows[number] for number in random.permutation(len(rows))[:size]]
    flipped = set(random.choice(len(rows), round(FLIPPED * len(rows)), replace=False).tolist())
    path = clone / "data" / "custom" / "train.csv"
    path.parent.mkdir(exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*columns, "label"])
        writer.writerows([*texts, label ^ (number in flipped)] for number, (*texts, label) in enumerate(rows))
    commit_data(clone)
    with chdir(clone):
        settings = SETTINGS | settings | {"data.text_column_names": json.dumps(columns)}
        options = [option for key, value in settings.items() for option in ("-S", f"{key}={value}")]
        subprocess.run(["python", "-m", "pipeline.folds", *options], check=True)
        [path] = Path("folds").glob("*/predictions.csv")
        predictions = pd.read_csv(path)
        idx, labels = (predictions[name].to_numpy() for name in ("idx", "label"))
        logits = predictions[["logit_0", "logit_1"]].to_numpy()
        is_wrong = np.isin(idx, list(flipped))
        loss = losses("single_label_classification", logits, labels)
        probability = np.exp(
            -np.column_stack([losses("single_label_classification", logits, 0 * labels + c) for c in (0, 1)])
        )
        adjusted = get_label_quality_scores(labels, probability, method="normalized_margin", adjust_pred_probs=True)
        subprocess.run(["dvc", "exp", "run", *options, "train"], check=True)
        training, train_loss = in_sample_loss()
    return {
        "rows": len(idx),
        "flipped": int(is_wrong.sum()),
        "suspects": ranking_scores(is_wrong, loss),
        "cleanlab": ranking_scores(is_wrong, 1 - get_label_quality_scores(labels, probability)),
        "cleanlab, adjusted": ranking_scores(is_wrong, 1 - adjusted),
        "minus cleanlab, adjusted": difference(is_wrong, loss, 1 - adjusted),
        "in-sample loss": ranking_scores(np.isin(training, list(flipped)), train_loss),
        "random": {"precision": float(is_wrong.mean()), "auprc": float(is_wrong.mean())},
        "accuracy": float(((logits.argmax(axis=1) == labels) ^ is_wrong).mean()),
    }


def labeled_rows(task: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Return the names of the text columns of a corpus, and the texts and the label of each row of train."""
    corpus = load_corpus(load_params().data.model_copy(update={"task": task}))
    columns = corpus.task.text_columns
    return columns, list(corpus.splits["train"][[*columns, "label"]].itertuples(index=False, name=None))


def in_sample_loss() -> tuple[Any, Any]:
    """Return the `idx` of the training rows of the run in the working directory, and the loss of its model there."""
    examples = load_examples(TOKENIZED, "train")
    model, tokenizer = load_fine_tuned_model(CLASSIFIER, "cpu"), load_tokenizer(CLASSIFIER)
    logits = predict_logits(scoring_trainer(model, tokenizer, Device("cpu", "fp32"), 64), examples)
    columns = examples.with_format("numpy")
    return columns["idx"][:], losses("single_label_classification", logits, columns["labels"][:])


def ranking_scores(is_wrong: Any, suspicion: Any) -> dict[str, float]:
    """Return the precision among as many rows as have wrong labels, and the area under the precision-recall curve."""
    first = np.argsort(-suspicion, kind="stable")[: is_wrong.sum()]
    return {"precision": float(is_wrong[first].mean()), "auprc": float(average_precision_score(is_wrong, suspicion))}


def difference(is_wrong: Any, ours: Any, theirs: Any) -> list[float]:
    """Return the difference of the areas under the curves, and the ends of its 95% interval (bootstrap over rows)."""
    random = np.random.default_rng(0)
    differences = []
    for _ in range(1000):
        rows = random.integers(len(is_wrong), size=len(is_wrong))
        areas = (average_precision_score(is_wrong[rows], suspicion[rows]) for suspicion in (ours, theirs))
        differences.append(next(areas) - next(areas))
    value = average_precision_score(is_wrong, ours) - average_precision_score(is_wrong, theirs)
    return [float(value), *map(float, np.quantile(differences, (0.025, 0.975)))]


def table(results: dict[str, Any], tasks: list[str]) -> str:
    """Format the means over the seeds as a Markdown table.

    Each ranking has its precision and the area under its precision-recall curve, both in percent. The last column
    counts the runs in which the area of `suspects` is smaller than that of the adjusted cleanlab, and the 95% interval
    of the difference leaves out 0.
    """
    rankings = ["random", "in-sample loss", "cleanlab", "cleanlab, adjusted", "suspects"]
    lines = [
        f"| task | runs | accuracy | {' | '.join(rankings)} | runs below cleanlab |",
        f"|{'---|' * (len(rankings) + 4)}",
    ]
    for task in tasks:
        runs = [result for name, result in results.items() if name.rpartition("-")[0] == task]
        if not runs:
            continue
        cells = [
            " / ".join(
                f"{100 * np.mean([run[ranking][score] for run in runs]):.0f}" for score in ("precision", "auprc")
            )
            for ranking in rankings
        ]
        accuracy = f"{100 * np.mean([run['accuracy'] for run in runs]):.1f}"
        runs_below_cleanlab = sum(run["minus cleanlab, adjusted"][2] < 0 for run in runs)
        lines.append(f"| {task} | {len(runs)} | {accuracy} | {' | '.join(cells)} | {runs_below_cleanlab} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
