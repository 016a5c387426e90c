"""Read `params.yaml`, the only configuration file, into sections with checked types and bounds.

The comments in `params.yaml` explain what each key means.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    NonNegativeFloat,
    PositiveFloat,
    ValidationError,
    model_validator,
)

from pipeline.core.messages import UserError, printable
from pipeline.core.paths import BASE_MODELS, CLASSIFIER, PARAMS, PRETRAINED, users_path
from pipeline.core.task import LEAKAGE, ProblemType
from pipeline.core.text import closest_match, did_you_mean, quoted
from pipeline.core.yaml12 import read_yaml

# Columns that stages, `classify` and `suspects` write.
_RESERVED_COLUMNS = r"labels?|correct_label|loss|fold|idx|prediction|probability(_.*)?|nearest_.*|logit_\d+|" + LEAKAGE

# Fields of transformers' TrainingArguments, and the keys that set them.
RENAMED = {
    "learning_rate": "train.lr",
    "num_train_epochs": "train.epochs",
    "per_device_train_batch_size": "train.batch_size",
    "per_device_eval_batch_size": "train.batch_size",
    "fp16": "train.precision",
    "bf16": "train.precision",
    "warmup_steps": "train.warmup_ratio",
    "load_best_model_at_end": "train.keep",
    "train_sampling_strategy": "train.group_by_length",
    "full_determinism": "train.deterministic",
    "activation_checkpointing": "train.gradient_checkpointing",
    "save_steps": "runtime.save_steps",
    "dataloader_num_workers": "runtime.dataloader_num_workers",
    "report_to": "runtime.report_to",
}


def _check_launcher(command: str) -> str:
    if command.split()[-1:] != ["-m"]:
        raise ValueError('must end with -m, such as "python -m"')
    return command


def _check_fold(fold: str) -> str:
    numbers = re.fullmatch("([1-9][0-9]*)/([1-9][0-9]*)", fold)
    if not numbers or int(numbers[2]) < 2 or int(numbers[1]) > int(numbers[2]):
        raise ValueError('must be null, or the number of a fold and the number of folds, such as "1/5"')
    return fold


def check_encoding(encoding: str) -> str:
    """Return the name of an encoding. Raises ValueError if Python does not know it."""
    try:
        "".encode(encoding)
    except (LookupError, ValueError):
        raise ValueError("must be an encoding that Python knows, such as utf-8, cp1252 or utf-16") from None
    return encoding


def _pairs_to_mapping(value: Any) -> Any:
    """Turn a list such as ["bad=2", "good=1"] into a mapping, because `dvc exp run -S` cannot replace a mapping."""
    if not isinstance(value, list) or not value or not all(isinstance(item, str) and "=" in item for item in value):
        return value
    mapping = dict(item.split("=", 1) for item in value)
    if len(mapping) < len(value):
        raise ValueError("must not repeat a name")
    return mapping


def _reject_boolean(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("must be a number greater than 0")
    return value


Seed = Annotated[int, Field(ge=0, lt=2**32)]  # the range of numpy's seeds
# Larger numbers are mistakes. They would fail later, with an overflow or for lack of memory or processes.
Count = Annotated[int, Field(ge=1, le=10**9)]  # of examples, steps, epochs or seconds
BatchSize = Annotated[int, Field(ge=1, le=2**16)]
Processes = Annotated[int, Field(ge=1, le=1024)]
# In ["bad=2", "good=1"], the numbers are text.
ClassWeight = Annotated[float, Field(gt=0, strict=False), BeforeValidator(_reject_boolean)]
Precision = Literal["fp32", "fp16", "bf16"]
PrecisionSetting = Literal["auto", Precision]
LoopSchedule = Literal[
    "linear", "cosine", "cosine_with_restarts", "polynomial", "constant", "constant_with_warmup", "inverse_sqrt"
]
MetricName = Literal[
    "accuracy", "balanced_accuracy", "f1", "f1_macro", "f1_micro", "matthews_correlation", "pearson", "rmse", "roc_auc",
    "spearmanr",
]  # fmt: skip

# The only values of these keys of train that the engine "loop" supports. It supports all values of the other keys.
LOOP_CHOICES: dict[str, tuple[Any, ...]] = {
    "deterministic": (False,),
    "gradient_checkpointing": (False,),
    "lr_scheduler_type": get_args(LoopSchedule),
    "optim": ("adamw_torch_fused",),
    "torch_compile": (False,),
    "training_args": ({},),
    "weight_decay": (0.0,),
}  # fmt: skip


class _Mistake(ValueError):
    """An error whose message names the key, because it is about several keys."""

    def __init__(self, key: str, requirement: str, value: Any) -> None:
        super().__init__(f"{key} {requirement}, got {quoted(value)}.")


class Section(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class SplitParams(Section):
    type: Literal["fixed", "stratify", "group", "datetime"]
    column: str | None
    seed: Seed
    fold: Annotated[str, AfterValidator(_check_fold)] | None
    fractions: list[float]


class DataParams(Section):
    """The section `data`.

    `task`, `name`, `on_missing`, `on_leakage`, `split.seed` and `split.fold` are for every task, and `corrections` is
    for every task except `demo`. The other keys describe custom files or a dataset of the Hub.
    """

    task: Literal["custom", "hub", "demo", "cola", "sst2", "mrpc", "qqp", "stsb", "mnli", "qnli", "rte", "wnli"]
    name: Annotated[str, Field(min_length=1, max_length=80)] | None
    dataset: str | None
    config: str | None
    splits: dict[str, str] | None
    directory: str
    delimiter: Literal[",", ";", "|", "\t"] | None
    encoding: Annotated[str, AfterValidator(check_encoding)]
    header: bool
    text_column_names: list[str]
    label_column_name: str | list[str]
    label_separator: Annotated[str, Field(min_length=1)] | None
    problem_type: ProblemType | None
    id2label: Annotated[dict[str, str] | None, BeforeValidator(_pairs_to_mapping)]
    split: SplitParams
    on_missing: Literal["error", "drop"]
    on_leakage: Literal["error", "warn", "drop"]
    slice_columns: list[str]
    corrections: str

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.task == "hub":
            self._check_hub()
        if self.task in ("custom", "hub"):
            self._check_columns()
            self._check_split()
        return self

    def _check_hub(self) -> None:
        if not re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}", self.dataset or ""):
            form = 'OWNER/NAME@<40-hex commit>, as "python -m pipeline.pin --dataset NAME" prints it'
            raise _Mistake("data.dataset", f"must be {form}", self.dataset)
        splits = {"train": "train"} if self.splits is None else self.splits
        if not {"train"} <= splits.keys() <= {"train", "validation", "test"} or len({*splits.values()}) < len(splits):
            requirement = "must name the split for train, and may name other splits for validation and test"
            raise _Mistake("data.splits", requirement, self.splits)

    def _check_columns(self) -> None:
        texts, labels = self.text_column_names, self.label_column_name
        if len(texts) not in (1, 2):
            raise _Mistake("data.text_column_names", "must name one column, or two for pairs", texts)
        for key, columns in (("text_column_names", texts), ("slice_columns", self.slice_columns)):
            if reserved := [column for column in columns if re.fullmatch(_RESERVED_COLUMNS, column)]:
                raise _Mistake(f"data.{key}", "must not name a column that the pipeline writes", reserved)
        used = [*texts, *self.slice_columns, *([labels] if isinstance(labels, str) else labels)]
        if repeated := sorted({name for name in used if used.count(name) > 1}):
            raise _Mistake("data", "must not name a column twice, as text, label or slice", repeated)
        if isinstance(labels, list) and len(labels) < 2:
            requirement = "must be a name, or a list of at least two columns that contain 0 or 1"
            raise _Mistake("data.label_column_name", requirement, labels)
        if isinstance(labels, list) and self.problem_type not in (None, "multi_label_classification"):
            requirement = 'must be null or "multi_label_classification" if data.label_column_name is a list'
            raise _Mistake("data.problem_type", requirement, self.problem_type)
        names = self.id2label
        if names is not None and (len(names) < 2 or len({*names.values()}) < len(names)):
            raise _Mistake("data.id2label", "must have at least two names, which must all differ", names)
        if names is not None and isinstance(labels, list) and names.keys() != {*labels}:
            raise _Mistake("data.id2label", f"must have one name for each of {quoted(labels)}", names)

    def _check_split(self) -> None:
        fractions = self.split.fractions
        if len(fractions) != 3 or min(fractions) < 0 or fractions[0] == 0 or abs(sum(fractions) - 1) > 1e-6:
            requirement = "must be fractions of train (above 0), validation and test that sum to 1"
            raise _Mistake("data.split.fractions", requirement, fractions)
        if self.split.type == "datetime" and self.split.column is None:
            requirement = 'must name the column with the times if data.split.type is "datetime"'
            raise _Mistake("data.split.column", requirement, None)


def _reject_output(checkpoint: str) -> str:
    path = users_path(checkpoint).resolve()
    for output in (CLASSIFIER, PRETRAINED):
        if path.is_relative_to(users_path(output).resolve()):
            raise ValueError(
                f"{output} is an output of the pipeline, so each run would train on top of the last one. Copy it first "
                f'with "cp -r {output} {BASE_MODELS}/NAME"'
            )
    return checkpoint


class ModelParams(Section):
    checkpoint: Annotated[str, AfterValidator(_reject_output)]


class BaselineParams(Section):
    frozen: bool


class TokenizeParams(Section):
    max_length: Annotated[int, Field(ge=8, le=10**9)]  # The tokenize stage checks the limits of the model.
    stride: Annotated[int, Field(ge=0, le=10**9)] | None
    train_on_windows: bool


class TrainParams(Section):
    engine: Literal["trainer", "loop"]
    seed: Seed
    epochs: Count
    lr: PositiveFloat
    batch_size: BatchSize
    gradient_accumulation_steps: BatchSize
    precision: PrecisionSetting
    weight_decay: NonNegativeFloat
    warmup_ratio: Annotated[float, Field(ge=0, lt=1)]
    lr_scheduler_type: Literal[LoopSchedule, "cosine_with_min_lr", "cosine_warmup_with_min_lr", "warmup_stable_decay"]
    max_grad_norm: NonNegativeFloat
    optim: str
    logging_steps: Count
    keep: Literal["best", "last"]
    early_stopping_patience: Count | None
    group_by_length: bool
    gradient_checkpointing: bool
    torch_compile: bool
    deterministic: bool
    metric_for_best_model: Literal["loss", MetricName] | None
    freeze_layers: Annotated[int, Field(ge=0)]
    class_weights: Annotated[Literal["balanced"] | dict[str, ClassWeight] | None, BeforeValidator(_pairs_to_mapping)]
    max_train_samples: Count | None
    num_threads: Processes | None
    training_args: dict[str, Any]

    @model_validator(mode="after")
    def _check_loop(self) -> Self:
        for key, supported in LOOP_CHOICES.items() if self.engine == "loop" else ():
            if (value := getattr(self, key)) not in supported:
                choices = " or ".join(map(quoted, supported))
                raise _Mistake(f"train.{key}", f"must be {choices} if train.engine is loop", value)
        return self


class PredictParams(Section):
    batch_size: BatchSize
    max_samples: Annotated[int, Field(ge=2, le=10**9)] | None  # The score of a single example has no interval.


class EvaluateParams(Section):
    metrics: Annotated[list[MetricName], Field(min_length=1)] | None


class RuntimeParams(Section):
    """Keys that say how to run, not what to compute. Only check depends on them, because it depends on all keys."""

    # dvc.yaml inserts it into the commands of train and predict. No stage reads it.
    launcher: Annotated[str, AfterValidator(_check_launcher)]
    num_proc: Processes
    save_steps: Count
    dataloader_num_workers: Annotated[int, Field(ge=0, le=1024)]
    report_to: str


class Params(Section):
    data: DataParams
    model: ModelParams
    baseline: BaselineParams
    tokenize: TokenizeParams
    train: TrainParams
    predict: PredictParams
    evaluate: EvaluateParams
    runtime: RuntimeParams


def load_params(path: Path = PARAMS) -> Params:
    """Read and check `params.yaml`. Raises UserError with the key, what it must be, and what was found."""
    return parse_params(read_yaml(path), path)


def parse_params(tree: Any, path: Path = PARAMS) -> Params:
    """Check the content of `params.yaml`. Raises the same UserError as `load_params`."""
    try:
        return Params.model_validate(tree)
    except ValidationError as error:
        # A misspelled key is also a missing key, but the misspelling says more.
        mistakes = sorted(error.errors(include_url=False), key=lambda mistake: mistake["type"] != "extra_forbidden")
        # For a union, pydantic reports a mistake for each type. The deepest one is in an entry of the value.
        same_key = [mistake for mistake in mistakes if mistake["loc"][:2] == mistakes[0]["loc"][:2]]
        raise UserError(f"{path}: {_mistake_message(max(same_key, key=lambda mistake: len(mistake['loc'])))}") from None


def _key_names(model: Any, prefix: str = "") -> Iterator[str]:
    """Yield the full name of each section and each key in a section."""
    for name, field in getattr(model, "model_fields", {}).items():
        yield f"{prefix}{name}"
        yield from _key_names(field.annotation, f"{prefix}{name}.")


def _mistake_message(mistake: Mapping[str, Any]) -> str:
    """Describe a mistake that pydantic reports: the key, pydantic's sentence, the value, and a suggestion."""
    keys = [*_key_names(Params)]
    parents = [printable(".".join(map(str, mistake["loc"][:depth]))) for depth in range(len(mistake["loc"]) + 1)]
    # The rest of the location is a member of a union, or an entry of a list or a mapping.
    key = max((parent for parent in parents if parent in keys), key=len, default="")
    reason, value = mistake["msg"].removeprefix("Value error, "), mistake["input"]
    if mistake["type"] == "missing":
        return f'{key} is missing. Copy it from the committed file ("git show HEAD:params.yaml").'
    if mistake["type"] == "extra_forbidden":
        section = parents[-2]
        known = {key.rpartition(".")[2]: key for key in keys if key.rpartition(".")[0] == section}
        targets = known | (RENAMED if section == "train" else {})
        match = closest_match(str(mistake["loc"][-1]), targets)
        hint = f'Did you mean "{targets[match]}"?' if match else f"The keys are: {', '.join(known)}."
        return f"{parents[-1]} is not a parameter. {hint}"
    if mistake["type"] == "value_error" and isinstance(mistake["ctx"]["error"], _Mistake):
        return str(reason)
    hint = did_you_mean(value, re.findall("'(.*?)'", reason)) if isinstance(value, str) else ""
    return f"{key or 'the file'}: {reason}, got {quoted(value)}.{hint}"
