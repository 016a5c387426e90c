"""Edit values of params.yaml, and leave comments and all other values as they are."""

import io
from collections.abc import Mapping
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.scalarstring import DoubleQuotedScalarString


def edit_values(text: str, values: Mapping[str, Any]) -> str:
    """Return the text of a params.yaml with some values replaced. DVC uses the same editor for `-S`.

    Args:
        values: The new value of each key, such as "data.split.column": a string, a number, a Boolean, None, or a list
            or dictionary of these.
    """
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 10_000  # By default, long values continue on the next line.
    params = yaml.load(text)
    for key, value in values.items():
        *sections, name = key.split(".")
        section = params
        for part in sections:
            section = section[part]
        if section[name] != value:  # A list that stays as it is keeps its form.
            section[name] = _on_one_line(value)
    edited = io.StringIO()
    yaml.dump(params, edited)
    return edited.getvalue()


def _on_one_line(value: Any) -> Any:
    """Mark a list or a dictionary to be written with brackets. A comment after its last line would get lost."""
    if isinstance(value, list):
        value = CommentedSeq(map(_quote_if_needed, value))
    elif isinstance(value, dict):
        value = CommentedMap({_quote_if_needed(key): _quote_if_needed(entry) for key, entry in value.items()})
    else:
        return value
    value.fa.set_flow_style()
    return value


def _quote_if_needed(value: Any) -> Any:
    """Quote a text that PyYAML rejects within brackets, although ruamel writes it without quotes, such as `[why?]`."""
    if isinstance(value, str) and any(character in value for character in ":?"):
        return DoubleQuotedScalarString(value)
    return value
