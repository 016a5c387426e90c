"""Read `params.yaml`, the only configuration, into typed and checked dataclasses; nothing else reads it.

The comments in `params.yaml` say what each key means; its type and bounds are here.
"""

import dataclasses
import difflib
import math
import os
import sys
import types
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml

from pipeline.core.messages import UserError
from pipeline.core.task import ProblemType
from pipeline.core.yaml12 import load_yaml

PARAMS = Path("params.yaml")
LOCAL = "python -m"  # runtime.launcher if training runs in one process on this machine
_MOST_BYTES = 100_000  # ours has 4,000; a file that takes seconds to read is a mistake


def _bounds(minimum: float, *, exclusive: bool = False, below: float = math.inf, most: float = math.inf) -> Any:
    return field(metadata={"minimum": minimum, "exclusive": exclusive, "below": below, "most": most})


def at_least(minimum: float, *, below: float = math.inf, most: float = math.inf) -> Any:
    """A number >= minimum, < below and <= most."""
    return _bounds(minimum, below=below, most=most)


def greater_than(minimum: float) -> Any:
    """A number > minimum."""
    return _bounds(minimum, exclusive=True)


def path() -> Any:
    """The text of a path that the system accepts."""
    return field(metadata={"path": True})


# Larger numbers are mistakes that end in a lack of memory or processes, or in an overflow.
_MOST_COUNTED = 10**9  # rows, steps, epochs and seconds
_MOST_ROWS_AT_ONCE = 2**16
_MOST_PROCESSES = 1024
_LONGEST_NAME, _LONGEST_PATH = 255, 4095  # bytes; https://man7.org/linux/man-pages/man3/realpath.3.html

Precision = Literal["fp32", "fp16", "bf16"]


@dataclass(frozen=True, kw_only=True)
class SplitParams:
    type: Literal["fixed", "random", "stratify", "group", "datetime", "hash"]
    column: str | None
    probabilities: list[float]
    seed: int = at_least(0, below=2**32)


@dataclass(frozen=True, kw_only=True)
class DataParams:
    """All but `task`, `on_missing` and `on_leakage` are of the user's own files."""

    task: Literal["own", "sample", "cola", "sst2", "mrpc", "qqp", "stsb", "mnli", "qnli", "rte", "wnli"]
    directory: str = path()
    text_column_names: list[str]
    label_column_name: str | list[str]
    problem_type: ProblemType | None
    id2label: dict[str, str] | list[str] | None
    split: SplitParams
    slice_columns: list[str]
    on_missing: Literal["refuse", "drop"]
    on_leakage: Literal["warn", "refuse", "drop"]

    @property
    def label_columns(self) -> list[str]:
        """The column of the labels, or several columns that hold 0 or 1 for a label each."""
        return [self.label_column_name] if isinstance(self.label_column_name, str) else self.label_column_name


@dataclass(frozen=True, kw_only=True)
class ModelParams:
    checkpoint: str = path()


@dataclass(frozen=True, kw_only=True)
class TokenizeParams:
    max_length: int = at_least(4, most=_MOST_COUNTED)  # the tokenize stage knows the model's own limits
    padding: Literal["dynamic", "max_length"]


@dataclass(frozen=True, kw_only=True)
class TrainParams:
    engine: Literal["trainer", "loop"]
    seed: int = at_least(0, below=2**32)  # numpy's range
    epochs: int = at_least(1, most=_MOST_COUNTED)
    lr: float = greater_than(0)
    batch_size: int = at_least(1, most=_MOST_ROWS_AT_ONCE)
    gradient_accumulation_steps: int = at_least(1, most=_MOST_ROWS_AT_ONCE)
    precision: Literal["auto", Precision]
    weight_decay: float = at_least(0)
    warmup_ratio: float = at_least(0, below=1)
    lr_scheduler_type: Literal[
        "linear", "cosine", "cosine_with_restarts", "polynomial", "constant", "constant_with_warmup", "inverse_sqrt",
        "reduce_lr_on_plateau", "cosine_with_min_lr", "cosine_warmup_with_min_lr", "warmup_stable_decay",
    ]  # fmt: skip
    max_grad_norm: float = at_least(0)
    optim: str
    logging_steps: int = at_least(1, most=_MOST_COUNTED)
    keep: Literal["best", "last"]
    early_stopping_patience: int | None = at_least(1, most=_MOST_COUNTED)
    group_by_length: bool
    gradient_checkpointing: bool
    torch_compile: bool
    deterministic: bool
    metric_for_best_model: str | None
    class_weights: Literal["balanced"] | dict[str, float] | None = greater_than(0)  # noqa: RUF009
    max_train_samples: int | None = at_least(1, most=_MOST_COUNTED)
    num_threads: int | None = at_least(1, most=_MOST_PROCESSES)
    extra: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class PredictParams:
    batch_size: int = at_least(1, most=_MOST_ROWS_AT_ONCE)
    swapped: bool
    max_samples: int | None = at_least(1, most=_MOST_COUNTED)


@dataclass(frozen=True, kw_only=True)
class EvaluateParams:
    metrics: list[str] | None


@dataclass(frozen=True, kw_only=True)
class RuntimeParams:
    """Keys that cannot change a result: no stage of dvc.yaml depends on them."""

    launcher: str  # dvc.yaml inserts it into the commands of train and predict; no stage reads it
    timeout: int = at_least(1, most=_MOST_COUNTED)
    num_proc: int = at_least(1, most=_MOST_PROCESSES)
    save_steps: int = at_least(1, most=_MOST_COUNTED)
    dataloader_num_workers: int = at_least(0, most=_MOST_PROCESSES)
    report_to: str


@dataclass(frozen=True, kw_only=True)
class Params:
    data: DataParams
    model: ModelParams
    tokenize: TokenizeParams
    train: TrainParams
    predict: PredictParams
    evaluate: EvaluateParams
    runtime: RuntimeParams


def keys_of(*names: str) -> list[str]:
    """All keys of each section that is named, as "predict", and each key that is, as "train.precision"."""
    sections = typing.get_type_hints(Params)
    all_keys = [f"{name}.{entry.name}" for name, kind in sections.items() for entry in dataclasses.fields(kind)]
    return [key for key in all_keys if key in names or key.partition(".")[0] in names]


# Fields of TrainingArguments that have another name here.
RENAMED = {
    "learning_rate": "train.lr",
    "num_train_epochs": "train.epochs",
    "per_device_train_batch_size": "train.batch_size",
    "per_device_eval_batch_size": "predict.batch_size",
    "fp16": "train.precision",
    "bf16": "train.precision",
    "warmup_steps": "train.warmup_ratio",
    "load_best_model_at_end": "train.keep",
    "train_sampling_strategy": "train.group_by_length",
    "full_determinism": "train.deterministic",
    "save_steps": "runtime.save_steps",
    "dataloader_num_workers": "runtime.dataloader_num_workers",
    "report_to": "runtime.report_to",
}


def load_params(path: Path = PARAMS) -> Params:
    """Read and check `params.yaml`. Raises UserError: one line with the key, what was found and what it must be."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise UserError(f"{path} has {path.stat().st_size} bytes; one of more than {_MOST_BYTES} is not read")
        text = path.read_text(encoding="utf-8")
        tree = load_yaml(text)
    except FileNotFoundError:
        raise UserError(f"{path} is missing; run in the directory that holds dvc.yaml") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {_line(error)}") from None
    # With aliases, a short text makes a huge tree, or an endless one.
    if alias := next((event for event in yaml.parse(text) if isinstance(event, yaml.AliasEvent)), None):
        raise UserError(f"{path} cannot be read: *{_line(alias.anchor, 60)} is an alias; write the value out")
    return _section(Params, tree, f"{path}:", "")


_Section = TypeVar("_Section")


def _section(kind: type[_Section], tree: Any, file: str, prefix: str) -> _Section:
    if not isinstance(tree, dict):
        raise UserError(f"{file} {prefix.rstrip('.') or 'the file'} is {_shown(tree)}; it must be a section of keys")
    hints = typing.get_type_hints(kind)
    for key in tree:
        if key not in hints:
            raise UserError(f"{file} {prefix}{_line(key, 60)} is not a parameter; {_meant(prefix, key, list(hints))}")
    values: dict[str, Any] = {}
    for entry in dataclasses.fields(kind):  # type: ignore[arg-type]
        name = prefix + entry.name
        if entry.name not in tree:
            raise UserError(f"{file} {name} is missing; every parameter must stand in the file")
        hint, value = hints[entry.name], tree[entry.name]
        if dataclasses.is_dataclass(hint):
            values[entry.name] = _section(typing.cast(type, hint), value, file, f"{name}.")
        else:
            values[entry.name] = _checked(hint, value, entry.metadata, f"{file} {name}")
    return kind(**values)


def _meant(prefix: str, key: str, known: list[str]) -> str:
    if key in RENAMED:
        return f"{key} is called {RENAMED[key]} here"
    if close := difflib.get_close_matches(key, known, n=1):
        return f'did you mean "{prefix}{close[0]}"?'
    beyond = "; other fields of TrainingArguments go into train.extra" if prefix == "train." else ""
    return f"the keys are {', '.join(known)}{beyond}"


def _checked(hint: Any, value: Any, bounds: Any, name: str) -> Any:
    arms = typing.get_args(hint) if typing.get_origin(hint) in (types.UnionType, typing.Union) else (hint,)
    arm = next((arm for arm in arms if _is(arm, value)), None)
    if arm is None:
        raise UserError(f"{name} is {_shown(value)}; it must be {' or '.join(map(_kind, arms))}")
    if arm == dict[str, float]:
        return {key: _checked(float, item, bounds, f"{name}.{key}") for key, item in value.items()}
    if arm is float:
        if not abs(value) <= sys.float_info.max:  # nor NaN; a whole number may be beyond the range of floats
            raise UserError(f"{name} is {_shown(value)}; it must be a finite number")
        value = float(value)
    if arm in (int, float):
        low, below, most = bounds["minimum"], bounds["below"], bounds["most"]
        too_low = value <= low if bounds["exclusive"] else value < low
        if too_low or not value < below or value > most:
            limit = f"greater than {low}" if bounds["exclusive"] else f"at least {low}"
            upper = f" and below {below}" if below < math.inf else f" and at most {most}" if most < math.inf else ""
            raise UserError(f"{name} is {_shown(value)}; it must be {limit}{upper}")
    if "path" in bounds:
        _check_path(value, name)
    return value


def _check_path(text: str, name: str) -> None:
    """Raise UserError for a text that cannot be a path: the system's own error would not name the key."""
    try:
        parts = os.fsencode(text).split(b"/")
    except UnicodeEncodeError:
        parts = [b"\0"]
    if any(b"\0" in part for part in parts):
        raise UserError(f"{name} is {_shown(text)}, which has a character that no path may have; remove it")
    if max(map(len, parts)) > _LONGEST_NAME or len(b"/".join(parts)) > _LONGEST_PATH:
        raise UserError(
            f"{name} is {_shown(text)}, which is too long for a path: {_LONGEST_PATH} bytes are the limit, and "
            f"{_LONGEST_NAME} between two slashes"
        )


def _is(arm: Any, value: Any) -> bool:
    plain, inner = typing.get_origin(arm) or arm, typing.get_args(arm)
    if plain is Literal:
        return value in inner
    if plain is list:
        return isinstance(value, list) and all(_is(inner[0], item) for item in value)
    if plain is dict:
        return isinstance(value, dict) and all(_is(inner[1], item) for item in value.values())
    # `type`, not isinstance, to which a bool is an int
    return plain is Any or type(value) is plain or (plain is float and type(value) is int)


def _kind(arm: Any) -> str:
    if typing.get_origin(arm) is Literal:
        choices = typing.get_args(arm)
        return f"one of {', '.join(choices)}" if len(choices) > 1 else str(choices[0])
    return _KINDS[arm]


_KINDS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    types.NoneType: "null",
    list[str]: "a list of texts",
    list[float]: "a list of numbers",
    dict[str, Any]: "a section of keys",
    dict[str, str]: "a section of keys with texts",
    dict[str, float]: "a section of keys with numbers",
}


def _shown(value: Any) -> str:
    """A value as YAML, cut to a readable length."""
    return _line(yaml.safe_dump(value, default_flow_style=True, width=math.inf).replace("\n...", ""), 60)


def _line(text: object, length: int = 300) -> str:
    line = " ".join(str(text).split())
    return line if len(line) <= length else line[: length - 3] + "..."
