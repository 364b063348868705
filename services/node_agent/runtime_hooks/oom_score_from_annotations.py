"""`oom_score_adj` of a container's processes, from its pod's annotations. Source: spec/node-agent.md 4.10."""

import re
from collections.abc import Mapping

import msgspec

from shared.kube.json_text import read_json
from shared.kube.oom_score_annotations import OOM_SCORE_ADJ, OOM_SCORE_ADJ_SPEC

LEAST, MOST = -1000, 1000


def score(annotations: Mapping[str, str] | None, container: str) -> int | None:
    """Returns the value of a container: its own, else its pod's.

    None, also for an invalid annotation, leaves its processes alone.
    """
    texts = annotations or {}
    found: int | None = None
    if spec := texts.get(OOM_SCORE_ADJ_SPEC):
        try:
            found = read_json(spec, dict[str, int]).get(container)
        except msgspec.MsgspecError:
            return None
    if found is None:
        text = texts.get(OOM_SCORE_ADJ, "")
        found = int(text) if re.fullmatch(r"[+-]?\d{1,5}", text) else None
    return found if found is not None and LEAST <= found <= MOST else None
