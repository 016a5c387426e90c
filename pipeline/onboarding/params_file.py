"""Edit values of params.yaml, and leave comments and all other values as they are."""

import json
import re
from collections.abc import Mapping
from typing import Any

import yaml

# Text that means the same with and without quotes, whichever version of YAML reads it.
_PLAIN = re.compile(r"[^\W\d_][\w.@/=-]*(?: [\w.@/=-]+)*")
_WORDS_WITH_A_MEANING = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}


def edit_values(text: str, values: Mapping[str, Any]) -> str:
    """Return the text of a params.yaml with some values replaced.

    Args:
        values: The new value of each key, such as "data.split.column": a string, a number, a Boolean, None, or a list
            or dictionary of these.
    """
    for key, value in values.items():
        text = _edit_value(text, key.split("."), value)
    return text


def _edit_value(text: str, names: list[str], value: Any) -> str:
    node: Any = yaml.compose(text, Loader=yaml.SafeLoader)
    for name in names:
        key, node = next(entry for entry in node.value if entry[0].value == name)
    start = text.index(":", key.end_mark.index) + 1
    end = _end(node)
    # Between the key and a list that starts on the next line, there may be a comment.
    gap = "" if end == start else text[start : node.start_mark.index]
    comment = gap.rstrip() if "\n" in gap else ""
    formatted = "" if value is None else f" {format_value(value)}"
    return text[:start] + formatted + comment + text[end:]


def _end(node: yaml.Node) -> int:
    """Return the position after a value. A list with an item on each line ends after its last item."""
    is_block = isinstance(node, yaml.CollectionNode) and not node.flow_style
    if not is_block:
        return int(node.end_mark.index)
    last = node.value[-1]
    return _end(last[1] if isinstance(node, yaml.MappingNode) else last)


def format_value(value: Any) -> str:
    """Format a value as YAML on a single line."""
    if isinstance(value, list):
        return f"[{', '.join(map(format_value, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{format_value(name)}: {format_value(item)}' for name, item in value.items())}}}"
    if isinstance(value, str):
        is_plain = _PLAIN.fullmatch(value) and value.lower() not in _WORDS_WITH_A_MEANING
        return value if is_plain else json.dumps(value, ensure_ascii=not value.isprintable())
    return json.dumps(value)
