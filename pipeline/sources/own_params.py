"""Whether the values of params.yaml's section `data` go together. Quick to import: stage check asks before the rest."""

from pipeline.core.data_card import LEAKAGE
from pipeline.core.messages import UserError
from pipeline.params import DataParams, SplitParams

KEY = "split key"  # column of what the values of `data.split.column` mean


def check_own(params: DataParams) -> None:
    """Raises UserError for values of the section `data` that do not go together."""
    texts, slices = params.text_column_names, params.slice_columns
    if len(texts) not in (1, 2):
        raise UserError(f"params.yaml: data.text_column_names is {texts}; name one column, or two for pairs")
    for key, names in (("text_column_names", texts), ("slice_columns", slices)):
        for name in names:
            if name in ("label", "idx", LEAKAGE, KEY) and name != params.label_column_name:
                raise UserError(f"params.yaml: data.{key} has {name}, a name that the pipeline uses; rename the column")
            if (*texts, *slices, params.label_column_name).count(name) > 1:
                raise UserError(f"params.yaml: data.{key} has {name}, which data names twice; name each column once")
    if params.id2label is not None and len(set(params.id2label.values())) < max(2, len(params.id2label)):
        raise UserError(f"params.yaml: data.id2label is {params.id2label}; it must have two or more different names")
    _check_split(params.split)


def _check_split(split: SplitParams) -> None:
    """Raises UserError for values that do not go together."""
    shares = split.probabilities
    if len(shares) != 3 or not all(0 <= share <= 1 for share in shares) or abs(sum(shares) - 1) > 1e-6 or not shares[0]:
        raise UserError(
            f"params.yaml: data.split.probabilities is {shares}; it must be the shares of train, validation and test, "
            "which sum to 1, as [0.8, 0.1, 0.1]"
        )
    if split.type == "datetime" and split.column is None:
        raise UserError("params.yaml: data.split.column is null; for type datetime name the column with the times")
    if split.type == "random" and split.column is not None:
        raise UserError(
            f"params.yaml: data.split.column is {split.column}, which type random does not need; set it to null, or "
            "take stratify or group"
        )
