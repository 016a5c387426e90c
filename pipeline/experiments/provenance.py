"""What a result was made from, according to dvc.lock."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.core.messages import UserError
from pipeline.core.paths import CHECKED


class Provenance(NamedTuple):
    """All that led to a result. Files and directories: path and first digits of the hash."""

    parameters: dict[str, Any]
    code: dict[str, str]  # dependencies that no stage writes: modules, the lock file of the packages
    sources: dict[str, str]  # outputs of stages without inputs from other stages: data and checkpoint
    outs: dict[str, str]


class _Stage(NamedTuple):
    parameters: dict[str, Any]
    deps: dict[str, str]
    outs: dict[str, str]


def provenance(result: Path, lock: Mapping[str, Any]) -> Provenance:
    """Follow a result back through the stages of a dvc.lock.

    Raises UserError where no stage writes it, and where two stages on the way recorded different versions of a
    dependency, an output or a parameter: the result is not of a single run then.
    """
    stages = {name: _stage(entries) for name, entries in lock.items()}
    makers = {path: name for name, stage in stages.items() for path in stage.outs}
    if str(result) not in makers:
        raise UserError(f"dvc.lock has no {result}")
    leading: dict[str, _Stage] = {}
    todo = [str(result)]
    while todo:
        name = makers.get(todo.pop())
        if name is not None and name not in leading:
            leading[name] = stages[name]
            todo += stages[name].deps

    recorded: dict[str, tuple[Any, str]] = {}
    found = Provenance({}, {}, {}, {})
    for name, stage in leading.items():
        for key, value in (stage.parameters | stage.deps | stage.outs).items():
            other, by = recorded.setdefault(key, (value, name))
            if value != other:
                raise UserError(f"dvc.lock has two versions of {key}: {other} in stage {by}, {value} in stage {name}")
        found.parameters.update(stage.parameters)
        found.code.update({path: digest for path, digest in stage.deps.items() if path not in makers})
        found.outs.update(stage.outs)
        if makers.keys().isdisjoint(stage.deps):
            found.sources.update(stage.outs)
    return found


def _stage(entries: Mapping[str, Any]) -> _Stage:
    try:
        deps, outs = ({item["path"]: item["md5"][:8] for item in entries.get(kind, [])} for kind in ("deps", "outs"))
        recorded = [item for file in entries.get("params", {}).values() for item in file.items()]
    except (AttributeError, KeyError, TypeError):  # DVC writes it in place, and may be killed then
        raise UserError("dvc.lock is not complete") from None
    deps.pop(str(CHECKED), None)  # orders the stages after the check of params.yaml; nothing is made from it
    parameters: dict[str, Any] = {}
    for key, value in recorded:
        section = value if isinstance(value, Mapping) and "." not in key else None  # else a key, as "train.lr"
        parameters |= {key: value} if section is None else {f"{key}.{name}": of for name, of in section.items()}
    return _Stage(parameters, deps, outs)
