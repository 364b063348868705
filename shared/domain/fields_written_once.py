"""Desired fields that end once they are applied: others change them afterwards, and none of them is written again."""

from shared.events.intents import FieldsDesired
from shared.kube.resource_names import CORDON, VOLUMES

_RESOURCES = frozenset({VOLUMES})
"""Resources whose desired fields are a request to Kubernetes' volume controllers, which change them as they answer it: a
volume loses its claim when it is released.
"""


def is_written_once(desired: FieldsDesired) -> bool:
    """Reports whether desired fields end once they are applied: those of volumes, and the cordon of a node, which an
    operator may end.
    """
    return desired.resource in _RESOURCES or desired.fields == CORDON
