"""NodeAffinityArgs. Source: spec/api.md 4.3."""

from collections.abc import Mapping
from typing import Any

import msgspec

from services.scheduler.plugins.helper.plugin_args import decode_args
from shared.errors import KoordError
from shared.kube.pod import NodeAffinity as Affinity


class _Args(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    added_affinity: Affinity | None = None


class BadAffinityArgs(KoordError):
    """NodeAffinityArgs that cannot be used."""


def read_affinity_args(raw: Mapping[str, Any], source: str) -> Affinity | None:
    """The `addedAffinity` of NodeAffinityArgs.

    Raises:
        BadAffinityArgs: a field is unknown or of the wrong type.
    """
    return decode_args(raw, _Args, source, BadAffinityArgs).added_affinity
