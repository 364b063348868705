"""The time of the next checkpoint, and its events. Pure: the caller signs, and a signature is a function of the text."""

from typing import Any

from services.audit.last_signed_checkpoint_state import AuditState
from services.audit.service_manifest import CHECKPOINT_FILE
from shared.events import Draft
from shared.events.audit import CheckpointSigned
from shared.events.intents import ObjectDesired
from shared.kube.instants import SECOND

CONFIG_MAPS = "configmaps"


def next_checkpoint_ns(state: AuditState, interval_s: float) -> int:
    """Returns the instant of the next checkpoint, by the instant of the last one; 0 before the first."""
    return state.signed_at_ns + int(interval_s * SECOND) if state.signed else 0


def checkpoint_drafts(signed: CheckpointSigned, config_map: str, text: str) -> list[Draft]:
    """Drafts a checkpoint, and the intent that copies it out of the database: a ConfigMap, which the gateway writes.

    Args:
        config_map: `namespace/name`; empty for none.
        text: the checkpoint as in files.
    """
    drafts = [Draft(signed)]
    if config_map:
        body: dict[str, Any] = {"data": {CHECKPOINT_FILE: text}}
        drafts.append(Draft(ObjectDesired(resource=CONFIG_MAPS, name=config_map, body=body)))
    return drafts
