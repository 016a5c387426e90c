"""Read `params.yaml`, the only configuration file, into sections with checked types and bounds.

The comments in `params.yaml` explain what each key means.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Literal, Self

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

from pipeline.core.data_card import GROUP, LEAKAGE
from pipeline.core.messages import UserError, printable
from pipeline.core.task import ProblemType
from pipeline.core.text import closest_match, quoted
from pipeline.core.yaml12 import read_yaml

PARAMS = Path("params.yaml")
LOCK = Path("dvc.lock")  # where DVC records the parameters and the files of each stage that has run
LOCAL = "python -m"  # runtime.launcher for training in a single process on this machine
_RESERVED_COLUMNS = ("label", "labels", "idx", "prediction", LEAKAGE, GROUP)

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
        raise ValueError(f'must end with -m, such as "{LOCAL}"')
    return command


def _check_fold(fold: str) -> str:
    numbers = re.fullmatch("([1-9][0-9]*)/([1-9][0-9]*)", fold)
    if not numbers or int(numbers[2]) < 2 or int(numbers[1]) > int(numbers[2]):
        raise ValueError('must be null, or the number of a fold and the number of folds, such as "1/5"')
    return fold


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


class Section(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class SplitParams(Section):
    type: Literal["fixed", "random", "stratify", "group", "datetime", "hash"]
    column: str | None
    seed: Seed
    fold: Annotated[str, AfterValidator(_check_fold)] | None
    fractions: list[float]


class DataParams(Section):
    """The section `data`.

    `task`, `name`, `on_missing`, `on_leakage`, `split.seed` and `split.fold` are for every task. The other keys
    describe custom files or a dataset of the Hub.
    """

    task: Literal["custom", "hub", "demo", "cola", "sst2", "mrpc", "qqp", "stsb", "mnli", "qnli", "rte", "wnli"]
    name: Annotated[str, Field(min_length=1, max_length=80)] | None
    dataset: str | None
    config: str | None
    splits: dict[str, str] | None
    directory: str
    delimiter: Literal[",", ";", "|", "\t"] | None
    encoding: str  # The check stage and the readers of files reject an unknown one.
    header: bool
    text_column_names: list[str]
    label_column_name: str | list[str]
    problem_type: ProblemType | None
    id2label: Annotated[dict[str, str] | list[str] | None, BeforeValidator(_pairs_to_mapping)]
    split: SplitParams
    on_missing: Literal["error", "drop"]
    on_leakage: Literal["error", "warn", "drop"]
    slice_columns: list[str]

    @model_validator(mode="after")
    def _check_data(self) -> Self:
        if self.task == "hub":
            self._check_hub()
        if self.task in ("custom", "hub"):
            self._check_columns()
            self._check_labels()
            self._check_split()
        return self

    def _check_hub(self) -> None:
        if not re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}", self.dataset or ""):
            requirement = (
                'must be OWNER/NAME@<40-hex commit> if data.task is "hub", as printed by '
                '"python -m pipeline.pin --dataset NAME"'
            )
            raise _mistake("data.dataset", requirement, self.dataset)
        if self.splits is not None and not {"train"} <= self.splits.keys() <= {"train", "validation", "test"}:
            requirement = "must say which split of the dataset is train, and may do so for validation and test"
            raise _mistake("data.splits", requirement, self.splits)

    def _check_columns(self) -> None:
        texts = self.text_column_names
        labels = [self.label_column_name] if isinstance(self.label_column_name, str) else self.label_column_name
        if len(texts) not in (1, 2):
            raise _mistake("data.text_column_names", "must name one column, or two for pairs", texts)
        for key, names in (
            ("text_column_names", texts),
            ("slice_columns", self.slice_columns),
            ("label_column_name", labels),
        ):
            for name in names:
                if name in _RESERVED_COLUMNS and key != "label_column_name":
                    requirement = (
                        f"must not contain any of {', '.join(_RESERVED_COLUMNS)} (rename the column in your files)"
                    )
                    raise _mistake(f"data.{key}", requirement, name)
                if [*texts, *self.slice_columns, *labels].count(name) > 1:
                    requirement = "must not repeat a column, or contain a column of another key of data"
                    raise _mistake(f"data.{key}", requirement, name)

    def _check_labels(self) -> None:
        columns, id2label = self.label_column_name, self.id2label
        if isinstance(columns, list):
            if len(columns) < 2:
                requirement = (
                    "must be a single name without brackets, or a list of at least two columns that contain 0 or 1"
                )
                raise _mistake("data.label_column_name", requirement, columns)
            if self.problem_type not in (None, "multi_label_classification"):
                requirement = 'must be null or "multi_label_classification" if data.label_column_name is a list'
                raise _mistake("data.problem_type", requirement, self.problem_type)
        if id2label is None:
            return
        names = id2label if isinstance(id2label, list) else list(id2label.values())
        if len(names) < 2 or len(set(names)) < len(names):
            raise _mistake("data.id2label", "must have at least two names, which must all differ", id2label)
        unnamed = isinstance(id2label, dict) and set(id2label) != set(columns)
        if isinstance(columns, list) and (unnamed or len(names) != len(columns)):
            raise _mistake("data.id2label", f"must have one name for each of the columns {quoted(columns)}", id2label)

    def _check_split(self) -> None:
        fractions = self.split.fractions
        if len(fractions) != 3 or min(fractions) < 0 or abs(sum(fractions) - 1) > 1e-6 or fractions[0] == 0:
            requirement = (
                "must be fractions of train (above 0), validation and test that sum to 1, such as [0.8, 0.1, 0.1]"
            )
            raise _mistake("data.split.fractions", requirement, fractions)
        if self.split.type == "datetime" and self.split.column is None:
            requirement = 'must name the column with the times if data.split.type is "datetime"'
            raise _mistake("data.split.column", requirement, None)
        if self.split.type == "random" and self.split.column is not None:
            requirement = 'must be null if data.split.type is "random" (to use a column, choose "stratify" or "group")'
            raise _mistake("data.split.column", requirement, self.split.column)


class ModelParams(Section):
    checkpoint: str


class TokenizeParams(Section):
    max_length: Annotated[int, Field(ge=4, le=10**9)]  # The tokenize stage checks the limit of the model.
    padding: Literal["dynamic", "max_length"]


class TrainParams(Section):
    engine: Literal["trainer", "loop"]
    seed: Seed
    epochs: Count
    lr: PositiveFloat
    batch_size: BatchSize
    gradient_accumulation_steps: BatchSize
    precision: Literal["auto", Precision]
    weight_decay: NonNegativeFloat
    warmup_ratio: Annotated[float, Field(ge=0, lt=1)]
    lr_scheduler_type: Literal[
        "linear", "cosine", "cosine_with_restarts", "polynomial", "constant", "constant_with_warmup", "inverse_sqrt",
        "reduce_lr_on_plateau", "cosine_with_min_lr", "cosine_warmup_with_min_lr", "warmup_stable_decay",
    ]  # fmt: skip
    max_grad_norm: NonNegativeFloat
    optim: str
    logging_steps: Count
    keep: Literal["best", "last"]
    early_stopping_patience: Count | None
    group_by_length: bool
    gradient_checkpointing: bool
    torch_compile: bool
    deterministic: bool
    metric_for_best_model: str | None
    class_weights: Annotated[Literal["balanced"] | dict[str, ClassWeight] | None, BeforeValidator(_pairs_to_mapping)]
    max_train_samples: Count | None
    num_threads: Processes | None
    training_args: dict[str, Any]


class PredictParams(Section):
    batch_size: BatchSize
    score_swapped_pairs: bool
    max_samples: Count | None


class EvaluateParams(Section):
    metrics: Annotated[list[str], Field(min_length=1)] | None


class RuntimeParams(Section):
    """Keys that say how to run, not what to compute. Only check depends on them, because it depends on all keys."""

    # dvc.yaml inserts it into the commands of train and predict. No stage reads it.
    launcher: Annotated[str, AfterValidator(_check_launcher)]
    timeout: Count
    num_proc: Processes
    save_steps: Count
    dataloader_num_workers: Annotated[int, Field(ge=0, le=1024)]
    report_to: str


class Params(Section):
    data: DataParams
    model: ModelParams
    tokenize: TokenizeParams
    train: TrainParams
    predict: PredictParams
    evaluate: EvaluateParams
    runtime: RuntimeParams


def keys_of(*names: str) -> list[str]:
    """Return the keys with these names, such as "train.precision", and all keys of the sections, such as "predict"."""
    keys = [f"{name}.{key}" for name, section in Params.__annotations__.items() for key in section.model_fields]
    return [key for key in keys if key in names or key.partition(".")[0] in names]


def load_params(path: Path = PARAMS) -> Params:
    """Read and check `params.yaml`. Raises UserError with the key, what it must be, and what was found."""
    return parse_params(read_yaml(path), path)


def require_unchanged(params: Params, keys: Sequence[str]) -> None:
    """Raise UserError if one of the keys has another value in params.yaml now than in `params`.

    DVC reads params.yaml when a stage has ended, and would record a value that the stage has not used.
    """
    current = load_params()
    for key in keys:
        if attrgetter(key)(current) != attrgetter(key)(params):
            raise UserError(
                f"params.yaml: {key} was changed while this stage ran, and DVC would record the new value for the old "
                'result. Run "dvc repro" again. To keep the result of a long training, undo the change before that.'
            )


def parse_params(tree: Any, path: Path = PARAMS) -> Params:
    """Check the content of `params.yaml`. Raises the same UserError as `load_params`."""
    try:
        return Params.model_validate(tree)
    except ValidationError as error:
        raise UserError(f"{path}: {_explain(error)}") from None


def _explain(error: ValidationError) -> str:
    """Describe the mistake in the first key that pydantic rejects."""
    mistakes = error.errors(include_url=False)
    # A misspelled key is also a missing key, but the misspelling says more.
    mistake = next((mistake for mistake in mistakes if mistake["type"] == "extra_forbidden"), mistakes[0])
    keys, schema = _find_schema(mistake["loc"])
    key = ".".join(keys)
    match mistake["type"]:
        case "missing":
            return (
                f'{key} is missing. Copy it from the committed file ("git show HEAD:params.yaml") or, after an update, '
                'from "git show upstream/main:params.yaml".'
            )
        case "extra_forbidden":
            return _explain_unknown(str(mistake["loc"][-1]), key, list(schema["properties"]))
        case "value_error":  # A check in this module raised it.
            reason, value = mistake["ctx"]["error"], mistake["input"]
            return str(reason) if isinstance(value, dict) else f"{key} {reason}, got {quoted(value)}."
    same_key = [mistake for mistake in mistakes if mistake["loc"][: len(keys)] == tuple(keys)]
    return f"{key or 'the file'} must be {_explain_value(same_key, len(keys), schema)}"


def _explain_value(mistakes: Sequence[Mapping[str, Any]], depth: int, schema: dict[str, Any]) -> str:
    """Return what a value must be, and what was found.

    Args:
        mistakes: The mistakes that pydantic reports for a single key. For a union, it reports one for each type.
        depth: The number of names in the key.
        schema: The JSON schema of the value.
    """
    mistake = max(mistakes, key=lambda mistake: len(mistake["loc"]))  # The deepest mistake is in an entry.
    value = mistake["input"]
    location_in_value = mistake["loc"][depth:]
    if "anyOf" in schema:
        location_in_value = location_in_value[1:]  # The first part is the type that pydantic tried.
    entry = f" for entry {quoted(location_in_value[0])}" if location_in_value else ""
    hint = ""
    if "enum" in schema and isinstance(value, str) and (suggestion := closest_match(value, schema["enum"])):
        hint = f' Did you mean "{suggestion}"?'
    return f"{describe(schema)}, got {quoted(value)}{entry}.{hint}"


def _find_schema(location: tuple[str | int, ...]) -> tuple[list[str], dict[str, Any]]:
    """Return the keys at the start of a location that pydantic reports, and the JSON schema of their value."""
    root = schema = _schema()
    keys: list[str] = []
    for name in location:
        if name not in schema.get("properties", {}):
            break
        keys.append(str(name))
        schema = schema["properties"][name]
        if "$ref" in schema:
            schema = root["$defs"][schema["$ref"].removeprefix("#/$defs/")]
    return keys, schema


@cache
def _schema() -> dict[str, Any]:
    return Params.model_json_schema()


def _explain_unknown(name: str, section: str, keys: list[str]) -> str:
    choices = {key: f"{section}.{key}".lstrip(".") for key in keys} | (RENAMED if section == "train" else {})
    message = f"{section}.{printable(name)[:60]} is not a parameter.".lstrip(".")
    if match := closest_match(name, choices):
        return f'{message} Did you mean "{choices[match]}"?'
    rest = " Put other fields of TrainingArguments into train.training_args." if section == "train" else ""
    return f"{message} The keys are: {', '.join(keys)}.{rest}"


_NOUNS = {"integer": "whole number", "number": "number", "string": "string"}
_LIMITS = {
    "exclusiveMinimum": "greater than", "minimum": "of at least", "exclusiveMaximum": "below", "maximum": "at most",
    "minLength": "of at least", "maxLength": "at most",
}  # fmt: skip


def describe(schema: dict[str, Any], plural: bool = False) -> str:
    """Return which values a JSON schema accepts, such as "a number greater than 0 or null"."""
    if "anyOf" in schema:
        choices = [describe(choice) for choice in schema["anyOf"]]
        return f"{', '.join(choices[:-1])} or {choices[-1]}"
    if "const" in schema:
        return quoted(schema["const"])
    if "enum" in schema:
        return f"one of {', '.join(quoted(choice) for choice in schema['enum'])}"
    match schema.get("type"):
        case "boolean":
            return "true or false"
        case "null":
            return "null"
        case "array":
            empty = "non-empty " if schema.get("minItems") else ""
            return f"a {empty}list of {describe(schema['items'], plural=True)}"
        case "object":
            values = schema.get("additionalProperties")
            return f"a mapping to {describe(values, plural=True)}" if isinstance(values, dict) else "a section of keys"
    noun = _NOUNS.get(schema.get("type", ""), "value")
    limits = [f"{words} {schema[limit]:,}" for limit, words in _LIMITS.items() if limit in schema]
    unit = "characters" if "maxLength" in schema else ""
    return " ".join(filter(None, [f"{noun}s" if plural else f"a {noun}", " and ".join(limits), unit]))


def _mistake(key: str, requirement: str, value: Any) -> ValueError:
    return ValueError(f"{key} {requirement}, got {quoted(value)}.")
