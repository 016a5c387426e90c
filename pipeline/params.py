"""`params.yaml`, read, typed and checked: the only configuration, and this is its only reader.

The comments in `params.yaml` say what each key means; here stand its type and its bounds.
"""

import dataclasses
import difflib
import math
import re
import types
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml

from pipeline.stage import UserError

PARAMS = Path("params.yaml")


def _bounds(minimum: float, *, exclusive: bool = False, below: float = math.inf) -> Any:
    return field(metadata={"minimum": minimum, "exclusive": exclusive, "below": below})


def at_least(minimum: float, *, below: float = math.inf) -> Any:
    """A number >= minimum, and < below."""
    return _bounds(minimum, below=below)


def greater_than(minimum: float) -> Any:
    """A number > minimum."""
    return _bounds(minimum, exclusive=True)


Precision = Literal["fp32", "fp16", "bf16"]


@dataclass(frozen=True, kw_only=True)
class DataParams:
    task: Literal["mrpc", "sample"]


@dataclass(frozen=True, kw_only=True)
class ModelParams:
    checkpoint: str


@dataclass(frozen=True, kw_only=True)
class TokenizeParams:
    max_length: int = at_least(4)  # the tokenize stage knows the model's own limits
    padding: Literal["dynamic", "max_length"]
    num_proc: int = at_least(1)


@dataclass(frozen=True, kw_only=True)
class TrainParams:
    seed: int = at_least(0, below=2**32)  # numpy's range
    epochs: int = at_least(1)
    lr: float = greater_than(0)
    batch_size: int = at_least(1)
    gradient_accumulation_steps: int = at_least(1)
    precision: Precision
    weight_decay: float = at_least(0)
    warmup_ratio: float = at_least(0, below=1)
    lr_scheduler_type: Literal[
        "linear", "cosine", "cosine_with_restarts", "polynomial", "constant", "constant_with_warmup", "inverse_sqrt",
        "reduce_lr_on_plateau", "cosine_with_min_lr", "cosine_warmup_with_min_lr", "warmup_stable_decay",
    ]  # fmt: skip
    max_grad_norm: float = at_least(0)
    optim: str
    logging_steps: int = at_least(1)
    keep: Literal["best", "last"]
    early_stopping_patience: int | None = at_least(1)
    group_by_length: bool
    gradient_checkpointing: bool
    torch_compile: bool
    max_train_samples: int | None = at_least(1)
    dataloader_num_workers: int = at_least(0)
    num_threads: int | None = at_least(1)
    report_to: str
    extra: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class PredictParams:
    batch_size: int = at_least(1)


@dataclass(frozen=True, kw_only=True)
class Params:
    data: DataParams
    model: ModelParams
    tokenize: TokenizeParams
    train: TrainParams
    predict: PredictParams


def load_params(path: Path = PARAMS) -> Params:
    """Read and check `params.yaml`. Raises UserError: one line with the key, what was found and what it must be."""
    try:
        tree = yaml.load(path.read_text(encoding="utf-8"), Loader=_Yaml12Loader)
    except FileNotFoundError:
        raise UserError(f"{path} is missing; run in the directory that holds dvc.yaml") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UserError(f"{path} cannot be read: {' '.join(str(error).split())}") from None
    return _section(Params, tree, f"{path}:", "")


class _Yaml12Loader(yaml.SafeLoader):
    """PyYAML, with the floats of YAML 1.2, the version that DVC writes.

    `dvc exp run -S train.lr=3e-5` writes `lr: 3e-05`, which YAML 1.1, and so PyYAML, takes for a string.
    """


# https://yaml.org/spec/1.2.2/#1032-tag-resolution
_Yaml12Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$"),
    list("-+.0123456789"),
)

_Section = TypeVar("_Section")


def _section(kind: type[_Section], tree: Any, file: str, prefix: str) -> _Section:
    if not isinstance(tree, dict):
        raise UserError(f"{file} {prefix.rstrip('.') or 'the file'} is {_shown(tree)}; it must be a section of keys")
    hints = typing.get_type_hints(kind)
    for key in tree:
        if key not in hints:
            close = difflib.get_close_matches(str(key), hints, n=1)
            meant = f'did you mean "{prefix}{close[0]}"?' if close else f"the keys are {', '.join(hints)}"
            raise UserError(f"{file} {prefix}{key} is not a parameter; {meant}")
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


def _checked(hint: Any, value: Any, bounds: Any, name: str) -> Any:
    optional = isinstance(hint, types.UnionType)
    if optional:
        if value is None:
            return None
        hint = next(arm for arm in typing.get_args(hint) if arm is not type(None))
    if typing.get_origin(hint) is Literal:
        choices = typing.get_args(hint)
        if value not in choices:
            raise UserError(f"{name} is {_shown(value)}; it must be one of {', '.join(choices)}")
        return value
    plain = typing.get_origin(hint) or hint
    if plain is float and type(value) is int:
        value = float(value)
    if type(value) is not plain:  # `is`: a bool is an int to isinstance
        raise UserError(f"{name} is {_shown(value)}; it must be {_KINDS[plain]}{' or null' if optional else ''}")
    if plain is float and not math.isfinite(value):
        raise UserError(f"{name} is {_shown(value)}; it must be a finite number")
    if plain in (int, float):
        low, below = bounds["minimum"], bounds["below"]
        too_low = value <= low if bounds["exclusive"] else value < low
        if too_low or not value < below:
            limit = f"greater than {low}" if bounds["exclusive"] else f"at least {low}"
            raise UserError(
                f"{name} is {value}; it must be {limit}{'' if below == math.inf else f' and below {below}'}"
            )
    return value


_KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text", dict: "a section of keys"}


def _shown(value: Any) -> str:
    """A value as it stands in YAML, cut to a length that one reads."""
    text = " ".join(yaml.safe_dump(value, default_flow_style=True, width=math.inf).replace("\n...", "").split())
    return text if len(text) <= 60 else text[:57] + "..."
