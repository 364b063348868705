"""Lines of a file for the places that findings about it name."""

import re
from typing import Any

import yaml

from shared.domain.all_faults import place_of

_NOTE = re.compile(r"^(?:key )?(?:([\w-]+): )?([^\s:]+)(?: has no effect|: )")
"""A finding without a path of its own begins with its place: a key, or the key of a document and a path in it."""


def line_of(node: Any, path: str, reason: str = "") -> int:
    """Returns the line of the innermost field of a place that there is; 0 where not even its first one is found.

    A text in a block, such as a document in a ConfigMap, is looked into; of a text in quotes the line is its own.

    Args:
        node: of the document, as yaml.compose gives it, or the text of one.
        path: such as `profiles[0].plugins`; empty for the place with which the reason begins.
    """
    found = _NOTE.match(reason)
    place = place_of(path, reason) if path else place_of(".".join(filter(None, found.groups())), "") if found else ()
    line = 0
    first = 0  # lines of the file before the text that is looked into
    for token in place:
        if isinstance(node, yaml.ScalarNode):
            if node.style not in ("|", ">"):
                return line
            first, node = node.start_mark.line + 1, _composed(node.value)
        below = _below(node, token)
        if below is None:
            return line
        mark, node = below
        line = first + mark.line + 1
    return line


def _below(node: Any, token: str | int) -> tuple[Any, Any] | None:
    """Returns where a field or an element begins, and its node; None where there is none."""
    if isinstance(node, yaml.MappingNode):
        return next(((key.start_mark, value) for key, value in node.value if key.value == token), None)
    if isinstance(node, yaml.SequenceNode) and isinstance(token, int) and token < len(node.value):
        return node.value[token].start_mark, node.value[token]
    return None


def _composed(text: str) -> Any:
    try:
        return yaml.compose(text, yaml.SafeLoader)
    except yaml.YAMLError:
        return None
