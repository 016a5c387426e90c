"""Read YAML with the parser that DVC uses, so that the stages and DVC read the same values.

It reads YAML 1.2. PyYAML reads YAML 1.1, in which 3e-05 is text and `no` is false.
"""

from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.constructor import SafeConstructor
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, ScalarNode

from pipeline.core.messages import UserError

_TAG = "tag:yaml.org,2002:"


def read_yaml(path: Path) -> Any:
    """Read a YAML file. Raises UserError if it is missing or not valid YAML."""
    try:
        return load_yaml(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path} is missing.") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {error}") from None


def load_yaml(text: str) -> Any:
    """Parse a YAML document. All keys, such as 0 in {0: bad, 1: good}, and all dates are text.

    Raises:
        ValueError: The document is invalid or has a duplicate key. The message is one line.
    """
    parser = YAML(typ="safe", pure=True)
    parser.Constructor = _Constructor
    try:
        return parser.load(text)
    except RecursionError:
        reason = "it is nested too deeply"
    except MarkedYAMLError as error:
        reason = f"{error.problem} in line {error.problem_mark.line + 1}" if error.problem_mark else str(error)
    except (YAMLError, ValueError, LookupError) as error:  # for example for "!!bool x"
        reason = str(error)
    raise ValueError(" ".join(reason.split())[:300])


class _Constructor(SafeConstructor):
    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        if isinstance(node, MappingNode):
            for key, _ in node.value:
                if isinstance(key, ScalarNode):
                    key.tag = f"{_TAG}str"
        return super().construct_mapping(node, deep)


_Constructor.add_constructor(f"{_TAG}timestamp", _Constructor.construct_yaml_str)
