"""Explain the metrics to the readers of the report and the model card."""

from pipeline.core.task import Task
from pipeline.evaluation.metrics import applicable_metrics


def explanations(task: Task, positive: str) -> dict[str, str]:
    """Explain each metric that applies to a task, with phrases that can follow "is".

    Args:
        positive: With two classes, the name of the positive class in the form that readers see.
    """
    noun, example = task.noun, task.noun[:-1]
    if task.problem_type == "multi_label_classification":
        parts, part, right = "labels", "label", "for which all labels are right"
    else:
        parts, part, right = "classes", "class", "that are classified correctly"
    mean_f1 = (
        f"the mean over the {parts} of F1, the harmonic mean of precision (how many predictions of a {part} are right) "
        f"and recall (how many {noun} with this {part} are found)"
    )
    curve = f"the area under the curve of precision against recall, as a mean over the {parts}"
    ranking = (
        f"how often the model ranks a {example} with a {part} above a {example} without it, as a mean over the {parts} "
        "(half of the time for guessing)"
    )
    if task.binary:
        mean_f1 = "the mean F1 of both classes"
        curve = f"the area under the curve of precision against recall for {positive}"
        ranking = (
            f"how often the model ranks a {example} labeled {positive} above another {example} (half of the time for "
            "guessing)"
        )
    phrases = {
        "accuracy": f"the proportion of {noun} {right}",
        "average_precision": curve,
        "balanced_accuracy": f"the mean over the classes of recall (how many {noun} with a class are found)",
        "f1": (
            f"the harmonic mean of precision (how many {noun} classified as {positive} are labeled so) and recall (how "
            f"many {noun} labeled {positive} are classified so)"
        ),
        "f1_macro": mean_f1,
        "f1_micro": (
            "the harmonic mean of precision (how many of the predicted labels are right) and recall (how many of the "
            "true labels are predicted), over all labels together"
        ),
        "matthews_correlation": "the correlation of labels and predictions, which is 0 for guessing",
        "pearson": "the linear correlation of labels and predictions",
        "rmse": "the root of the mean squared error, in the units of the labels, so lower is better",
        "roc_auc": ranking,
        "spearmanr": "the correlation of the ranks of labels and predictions",
    }
    return {name: phrases[name] for name in applicable_metrics(task)}
