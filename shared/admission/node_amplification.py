"""Node status with amplified resources: allocatable is multiplied, and the kubelet's amounts are kept in an annotation.

Source: spec/api.md 5.5; upstream pkg/webhook/node/plugins/resourceamplification.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from shared.admission.pod.pod_json import Raw, annotations_of, copy_of
from shared.admission.rejection import AdmissionRejected
from shared.kube.json_text import read_json
from shared.kube.node import RAW_ALLOCATABLE
from shared.kube.quantity import BadQuantity, milli, nanos
from shared.kube.quantity_text import Notation, notation_of, quantity_text

RATIO = "node.koordinator.sh/resource-amplification-ratio"
AMPLIFIED = ("cpu", "memory")


def amplified(node: Raw, old: Raw) -> dict[str, Any]:
    """Amplifies a node's object during an update of its status.

    Args:
        old: the node before the update.

    Raises:
        AdmissionRejected: `ratio`, `raw`: an annotation cannot be read.
    """
    result = copy_of(node)
    annotations = dict(annotations_of(node))
    text = annotations.get(RATIO)
    if not text:
        if RAW_ALLOCATABLE in annotations:
            del annotations[RAW_ALLOCATABLE]
            result["metadata"]["annotations"] = annotations
        return result
    ratios = _ratios(node, text)
    allocatable = (result.get("status") or {}).get("allocatable")
    if allocatable is None:
        return result
    raw = _raw(node, old, annotations)
    result.setdefault("metadata", {})["annotations"] = annotations
    for name in AMPLIFIED:
        if name in raw and ratios.get(name, 0) > 1:
            allocatable[name] = _times(str(raw[name]), ratios[name])
    return result


def _raw(node: Raw, old: Raw, annotations: dict[str, str]) -> Mapping[str, Any]:
    """Returns the kubelet's amounts: from the annotation, or from the update where they are new or not in the annotation."""
    new_amounts, old_amounts = (_amounts(each) for each in (node, old))
    if RAW_ALLOCATABLE not in annotations or new_amounts != old_amounts:
        reported = node["status"]["allocatable"]
        raw = {name: str(reported[name]) for name in AMPLIFIED if name in reported}
        annotations[RAW_ALLOCATABLE] = msgspec.json.encode(raw).decode()
        return raw
    try:
        read = read_json(annotations[RAW_ALLOCATABLE], dict[str, str | int | float] | None) or {}
        for text in read.values():
            nanos(str(text))
    except (msgspec.MsgspecError, BadQuantity) as error:
        message = f"node {node['metadata']['name']}: annotation {RAW_ALLOCATABLE} cannot be read: {error}; remove it"
        raise AdmissionRejected("raw", message) from error
    return read


def _ratios(node: Raw, text: str) -> Mapping[str, float]:
    try:
        return read_json(text, dict[str, float] | None) or {}
    except msgspec.MsgspecError as error:
        message = f'node {node["metadata"]["name"]}: annotation {RATIO} is {text!r}; give JSON like {{"cpu": 1.5}}'
        raise AdmissionRejected("ratio", message) from error


def _amounts(node: Raw) -> dict[str, int]:
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    return {name: nanos(str(allocatable[name])) for name in AMPLIFIED if name in allocatable}


def _times(text: str, ratio: float) -> str:
    """Multiplies as doubles, truncated to whole thousandths."""
    product = int(milli(nanos(text)) * ratio)
    notation = Notation.DECIMAL if product % 1000 else notation_of(text)
    return quantity_text(product * 1_000_000, notation)
