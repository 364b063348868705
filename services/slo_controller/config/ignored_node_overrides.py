"""Annotation and labels of a node that are to override its colocation strategy, and are ignored or passed over in part.

Nothing else shows it: the node is overcommitted by the strategy of its cluster.
"""

from collections.abc import Iterator

import msgspec

from services.slo_controller.config.colocation_strategy import ANNOTATION, RATIO_LABELS, ratio_fault
from shared.kube.json_text import read_json
from shared.kube.meta import Metadata
from shared.kube.slo_config import ColocationStrategy
from shared.type_error_words import field_fault
from shared.unknown_fields import unknown_fields


def ignored_overrides(node: Metadata) -> Iterator[str]:
    """Yields a sentence about each of them, with what counts instead."""
    if text := (node.annotations or {}).get(ANNOTATION):
        try:
            read_json(text, ColocationStrategy)
        except msgspec.MsgspecError as error:
            yield f"annotation {ANNOTATION} cannot be read, and is ignored: {field_fault(error)}"
        else:
            for field in unknown_fields(ColocationStrategy, msgspec.json.decode(text)):
                yield f"annotation {ANNOTATION}: {field.path} has no effect{field.meant}"
    for label in RATIO_LABELS:
        if fault := ratio_fault((node.labels or {}).get(label)):
            yield f"label {label} {fault}"
