"""Read YAML 1.2, like DVC. PyYAML alone reads YAML 1.1, in which 3e-05 is text and `no` is false."""

import re
from pathlib import Path
from typing import Any

import yaml

from pipeline.core.messages import UserError

_TAG = "tag:yaml.org,2002:"


def read_yaml(path: Path) -> Any:
    """Read a YAML file. Raises UserError if it is missing or not valid YAML."""
    try:
        return load_yaml(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path} is missing. Run this in the directory that holds dvc.yaml.") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {error}") from None


def load_yaml(text: str) -> Any:
    """Parse a YAML document.

    Raises:
        ValueError: The document is invalid or has a duplicate key. The message is one line.
    """
    try:
        return yaml.load(text, Loader=_CoreSchemaLoader)
    except RecursionError:
        reason = "it is nested too deeply"
    except yaml.MarkedYAMLError as error:
        reason = f"{error.problem} in line {error.problem_mark.line + 1}" if error.problem_mark else str(error)
    except (ValueError, LookupError, AttributeError, yaml.YAMLError) as error:  # for example for "!!bool x"
        reason = str(error)
    raise ValueError(" ".join(reason.split())[:300])


class _CoreSchemaLoader(yaml.SafeLoader):
    """Load the core schema of YAML 1.2 only, so that dates and 12:30 are text, and 010 is ten."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        names: set[str] = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if key.tag == f"{_TAG}int":  # for example in {0: negative, 1: positive}
                key.tag = f"{_TAG}str"
            if key.tag != f"{_TAG}str":
                raise yaml.MarkedYAMLError(
                    problem=f"the key {key.value} is not text; quote it", problem_mark=key.start_mark
                )
            if key.value in names:
                raise yaml.MarkedYAMLError(problem=f"the key {key.value} is given twice", problem_mark=key.start_mark)
            names.add(key.value)
        return super().construct_mapping(node, deep)

    def construct_int(self, node: Any) -> int:
        text = str(self.construct_scalar(node))
        return int(text, 0 if text.startswith(("0o", "0x")) else 10)


_CoreSchemaLoader.yaml_implicit_resolvers = {}
_CoreSchemaLoader.add_constructor(f"{_TAG}int", _CoreSchemaLoader.construct_int)
# See https://yaml.org/spec/1.2.2/#1032-tag-resolution. The lists have the characters that such a scalar may begin with.
for _name, _pattern, _first in (
    ("null", r"(null|Null|NULL|~|)$", ["", *"~nN"]),
    ("bool", r"(true|True|TRUE|false|False|FALSE)$", [*"tTfF"]),
    ("int", r"([-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$", [*"-+0123456789"]),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$", [*"-+.0123456789"]),
    ("float", r"([-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$", [*"-+."]),
):
    _CoreSchemaLoader.add_implicit_resolver(f"{_TAG}{_name}", re.compile(_pattern), _first)
