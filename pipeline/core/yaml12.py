"""Read YAML 1.2, like DVC. PyYAML alone reads YAML 1.1, in which 3e-05 is text and `no` is false."""

import re
from pathlib import Path
from typing import Any

import yaml

from pipeline.core.messages import UserError, one_line


def read_yaml(path: Path) -> Any:
    """Read a YAML file. Raises UserError if it is not valid YAML."""
    try:
        return load_yaml(path.read_text(encoding="utf-8"))
    except (ValueError, yaml.YAMLError) as error:
        raise UserError(f"{path} cannot be read: {one_line(error)}") from None


def load_yaml(text: str) -> Any:
    return yaml.load(text, Loader=_CoreSchemaLoader)


class _CoreSchemaLoader(yaml.SafeLoader):
    """Load the core schema of YAML 1.2 only, in which dates and 12:30 are text, and 010 is ten."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        for key, _ in node.value:
            key.tag = "tag:yaml.org,2002:str"  # also the labels in {0: negative, 1: positive}
        return super().construct_mapping(node, deep)


_CoreSchemaLoader.yaml_implicit_resolvers = {}
# https://yaml.org/spec/1.2.2/#1032-tag-resolution
for _name, _pattern in {
    "null": r"(null|Null|NULL|~|)$",
    "bool": r"(true|True|TRUE|false|False|FALSE)$",
    "int": r"[-+]?[0-9]+$",
    "float": r"([-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$",
}.items():
    _CoreSchemaLoader.add_implicit_resolver(f"tag:yaml.org,2002:{_name}", re.compile(_pattern), None)
_CoreSchemaLoader.add_constructor("tag:yaml.org,2002:int", lambda loader, node: int(node.value))
