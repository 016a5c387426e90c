"""Write the predictions of a split, for `evaluation.predictions` to read."""

from pathlib import Path

from datasets import Dataset, Features, Value, disable_progress_bars

from pipeline.core.dataset_files import label_feature
from pipeline.core.task import Task
from pipeline.evaluation.metrics import Ints, Logits, Values, logits_to_predictions


def write_predictions(
    directory: Path, split: str, task: Task, idx: Ints, labels: Values | None, logits: Logits
) -> None:
    """Write `directory/split.parquet` with the columns `idx`, `label`, `prediction`, `logit_0`, `logit_1` and so on.

    Args:
        labels: None if they are not known. The file then has no `label`.
    """
    columns = {
        "idx": idx,
        **({} if labels is None else {"label": labels}),
        "prediction": logits_to_predictions(task.problem_type, logits),
        **{f"logit_{output}": logits[:, output] for output in range(task.outputs)},
    }
    features = {
        "idx": Value("int32"),
        "label": label_feature(task),
        "prediction": label_feature(task),
        **{f"logit_{output}": Value("float64") for output in range(task.outputs)},
    }
    examples = Dataset.from_dict(columns, features=Features({name: features[name] for name in columns}))
    disable_progress_bars()  # Writing takes less than a second.
    examples.to_parquet(directory / f"{split}.parquet")
