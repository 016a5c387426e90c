"""YAML 1.2, the version that DVC reads and writes; to YAML 1.1, and so to PyYAML, 3e-05 is text and no is false."""

import re
import typing
from pathlib import Path
from typing import Any

import yaml

from pipeline.core.messages import UserError


def load_yaml(text: str) -> Any:
    """Read a document. Raises ValueError with the reason, in one line, also for a key that is given twice."""
    try:
        return yaml.load(text, Loader=_CoreSchemaLoader)
    except yaml.MarkedYAMLError as error:
        line = f" in line {error.problem_mark.line + 1}" if error.problem_mark else ""
        reason = f"{error.problem}{line}"
    except RecursionError:
        reason = "it is nested too deeply"
    except (ValueError, LookupError, yaml.YAMLError) as error:  # a control character, a number without end
        reason = str(error)
    raise ValueError(" ".join(reason.split()))


def read_yaml(path: Path) -> Any:
    """Read a file. Raises UserError where it is not YAML."""
    try:
        return load_yaml(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path} cannot be read: {error}") from None


class _CoreSchemaLoader(yaml.SafeLoader):
    """PyYAML with the core schema of YAML 1.2 and nothing else: no dates, 12:30 is text, and 010 is ten."""

    yaml_constructors: typing.ClassVar[dict[Any, Any]] = {
        tag: yaml.SafeLoader.yaml_constructors[tag]
        for tag in (None, *(f"tag:yaml.org,2002:{kind}" for kind in ("null", "bool", "float", "str", "seq", "map")))
    }

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        if not isinstance(node, yaml.MappingNode):  # as in "!!map [1]"
            return super().construct_mapping(node, deep)  # which raises an error that says so
        mapping: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            key = self.construct_object(key_node, deep=True)
            if type(key) is int:  # as in {0: negative, 1: positive}
                key = str(key)
            if not isinstance(key, str):
                raise yaml.MarkedYAMLError(None, None, f"the key {key} is not text; quote it", key_node.start_mark)
            if key in mapping:
                raise yaml.MarkedYAMLError(None, None, f"the key {key} is given twice", key_node.start_mark)
            mapping[key] = self.construct_object(value_node, deep=deep)
        return mapping

    def construct_int(self, node: Any) -> int:
        text = str(self.construct_scalar(node))
        return int(text, 0 if text.startswith(("0o", "0x")) else 10)


_CoreSchemaLoader.yaml_implicit_resolvers = {}
_CoreSchemaLoader.add_constructor("tag:yaml.org,2002:int", _CoreSchemaLoader.construct_int)

# https://yaml.org/spec/1.2.2/#1032-tag-resolution
for _kind, _first, _pattern in (
    ("null", ["", *"~nN"], r"(null|Null|NULL|~|)$"),
    ("bool", [*"tTfF"], r"(true|True|TRUE|false|False|FALSE)$"),
    ("int", [*"-+0123456789"], r"([-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$"),
    ("float", [*"-+.0123456789"], r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$"),
    ("float", [*"-+."], r"([-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$"),
):
    _CoreSchemaLoader.add_implicit_resolver(f"tag:yaml.org,2002:{_kind}", re.compile(_pattern), _first)
