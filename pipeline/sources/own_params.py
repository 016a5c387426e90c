"""Check that the values of the section `data` of params.yaml go together. Stage check imports it."""

from pipeline.core.data_card import LEAKAGE
from pipeline.core.messages import UserError
from pipeline.params import DataParams, SplitParams


def check_own(params: DataParams) -> None:
    """Raise UserError if values of the section `data` do not go together."""
    texts, slices, labels = params.text_column_names, params.slice_columns, params.label_columns
    if len(texts) not in (1, 2):
        raise UserError(f"params.yaml: data.text_column_names is {texts}; name one column, or two for pairs")
    for key, names in (("text_column_names", texts), ("slice_columns", slices), ("label_column_name", labels)):
        for name in names:
            if name in ("label", "idx", LEAKAGE) and name not in labels:
                raise UserError(f"params.yaml: data.{key} has {name}, a name that the pipeline uses; rename the column")
            if (*texts, *slices, *labels).count(name) > 1:
                raise UserError(f"params.yaml: data.{key} has {name}, which data names twice; name each column once")
    _check_labels(params)
    _check_split(params.split)


def _check_labels(params: DataParams) -> None:
    columns, id2label = params.label_column_name, params.id2label
    if isinstance(columns, list):
        if len(columns) < 2:
            raise UserError(
                f"params.yaml: data.label_column_name is {columns}; a list names two or more columns, each with 0 or 1 "
                "for a label; write the name of a single column without brackets"
            )
        if params.problem_type not in (None, "multi_label_classification"):
            raise UserError(
                f"params.yaml: data.problem_type is {params.problem_type}, but data.label_column_name is {columns}; "
                "several columns mean multi_label_classification"
            )
    if id2label is None:
        return
    names = id2label if isinstance(id2label, list) else list(id2label.values())
    if len(set(names)) < max(2, len(names)):
        raise UserError(f"params.yaml: data.id2label is {id2label}; it must have two or more different names")
    fits = set(id2label) == set(columns) if isinstance(id2label, dict) else len(id2label) == len(columns)
    if isinstance(columns, list) and not fits:
        raise UserError(f"params.yaml: data.id2label is {id2label}; it must name each of the columns {columns}")


def _check_split(split: SplitParams) -> None:
    fractions = split.probabilities
    are_fractions = len(fractions) == 3 and all(0 <= fraction <= 1 for fraction in fractions) and fractions[0]
    if not are_fractions or abs(sum(fractions) - 1) > 1e-6:
        raise UserError(
            f"params.yaml: data.split.probabilities is {fractions}; it must be the fractions of train, validation "
            "and test, which sum to 1, such as [0.8, 0.1, 0.1]"
        )
    if split.type == "datetime" and split.column is None:
        raise UserError("params.yaml: data.split.column is null; for type datetime name the column with the times")
    if split.type == "random" and split.column is not None:
        raise UserError(
            f"params.yaml: data.split.column is {split.column}, which type random does not need; set it to null, or "
            "take stratify or group"
        )
