"""The nine tasks of GLUE (Wang et al. 2018), as one table."""

from dataclasses import dataclass

from pipeline.core.task import Task

HUB_REPO = "nyu-mll/glue"
HUB_REVISION = "bcdcba79d07bc864c1c254ccfcedcce55bcc9a8c"
_SPLITS = ("train", "validation", "test", "validation_mismatched", "test_mismatched")


@dataclass(frozen=True)
class _Glue:
    """A task of GLUE.

    Attributes:
        folder: The task's folder in the archives.
        texts: The names of the text columns on the Hub.
        labels: The names of the classes, in the Hub's order; empty for a regression.
        rows: The number of rows of each split, in the order of `_SPLITS`.
        columns: The names of the text columns and of the label column in the archives, if they differ from the Hub's.
        header: The columns of the labeled files in the archives, if these files have no header.
    """

    folder: str
    texts: list[str]
    labels: list[str]
    metrics: list[str]
    rows: tuple[int, ...]
    columns: list[str] | None = None
    header: list[str] | None = None


_PAIR = ["sentence1", "sentence2"]
_ENTAILMENT = ["entailment", "not_entailment"]

# To add a similar task, add a row here, and its name to `params.DataParams`.
GLUE = {
    "cola": _Glue(
        "CoLA", ["sentence"], ["unacceptable", "acceptable"], ["matthews_correlation"], (8551, 1043, 1063),
        header=["source", "label", "star", "sentence"],
    ),
    "sst2": _Glue("SST-2", ["sentence"], ["negative", "positive"], ["accuracy"], (67349, 872, 1821)),
    "mrpc": _Glue("MRPC", _PAIR, ["not_equivalent", "equivalent"], ["accuracy", "f1"], (3668, 408, 1725)),
    "qqp": _Glue(
        "QQP", ["question1", "question2"], ["not_duplicate", "duplicate"], ["accuracy", "f1"], (363846, 40430, 390965),
        columns=["question1", "question2", "is_duplicate"],
    ),
    "stsb": _Glue(
        "STS-B", _PAIR, [], ["pearson", "spearmanr"], (5749, 1500, 1379), columns=["sentence1", "sentence2", "score"]
    ),
    "mnli": _Glue(
        "MNLI", ["premise", "hypothesis"], ["entailment", "neutral", "contradiction"], ["accuracy"],
        (392702, 9815, 9796, 9832, 9847), columns=["sentence1", "sentence2", "gold_label"],
    ),
    "qnli": _Glue("QNLI", ["question", "sentence"], _ENTAILMENT, ["accuracy"], (104743, 5463, 5463)),
    "rte": _Glue("RTE", _PAIR, _ENTAILMENT, ["accuracy"], (2490, 277, 3000)),
    "wnli": _Glue("WNLI", _PAIR, ["not_entailment", "entailment"], ["accuracy"], (635, 71, 146)),
}  # fmt: skip

# The known sha256 checksums of files in the archives.
ARCHIVE_SHA256 = {
    "CoLA/dev.tsv": "8c013e21dc39957cac37378d87bebe225b694a0d5fe13eded66c2856628833fd",
    "CoLA/test.tsv": "3b4df85f7a9a0633574b38d181e18090ac961a24b18fb6bcd74999ddea8ad0b8",
    "CoLA/train.tsv": "cb368ebeb9f27d7ad03720d27ddc95687a311bdb100781a2fe59a5f5b1bc0624",
    "RTE/dev.tsv": "80230dfa1347282e7b532b06a1004a76a710087541189bf874223ddf0e3819fb",
    "RTE/test.tsv": "6e33f09b5c2bfd5fd5fde217070f3dd49e484e33b9752b5864cf36fc421a213f",
    "RTE/train.tsv": "41e3a9b063433392343fad9e962cf2f58b681c78d8f71592f4186f0837246c5c",
    "SST-2/dev.tsv": "54a9c12c77e402fc14d6a66a506f24d999f596b0176eb777c972cccc2f9cc4b0",
    "SST-2/test.tsv": "69a938605609b3e6663b4487918fe1565eb293734e6e520d0366d1d412fd2a13",
    "SST-2/train.tsv": "48eac26399f8456935f81dd9e3a745c1430adb6c62e233ccfe22db4a0d15d1d1",
    "STS-B/dev.tsv": "fe7dc0632a5033562f3cadff991f6e8d9b9b6311861660e78c3c82eb7db67f59",
    "STS-B/test.tsv": "16b4223d7d44a644fbc10f1b449472cfe81e1715fb07cf44023b0aa88ce856eb",
    "STS-B/train.tsv": "41c4d978b6162abdcada7e49a982211954cca5459c228db478af333124b257a2",
}


def glue_task(name: str) -> Task:
    """Return the task with this name from `GLUE`."""
    glue = GLUE[name]
    predicted = list(_SPLITS[1 : len(glue.rows)])
    return Task(
        name=name,
        problem_type="single_label_classification" if glue.labels else "regression",
        text_columns=glue.texts,
        labels=glue.labels,
        metrics=glue.metrics,
        metric_for_best_model="f1" if "f1" in glue.metrics else glue.metrics[0],
        predicted_splits=predicted,
        unlabeled_splits=[] if name == "mrpc" else [split for split in predicted if split.startswith("test")],
    )
