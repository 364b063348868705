"""ScarceResourceAvoidanceArgs. Source: spec/scheduler-core.md 6; spec/api.md 4.3."""

from collections.abc import Mapping
from typing import Any

import msgspec

from services.scheduler.plugins.helper.plugin_args import decode_args
from shared.errors import KoordError


class BadScarceArgs(KoordError):
    """ScarceResourceAvoidanceArgs that cannot be used."""


class _Args(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    resources: tuple[str, ...] | None = None


def read_scarce_args(raw: Mapping[str, Any], source: str) -> frozenset[str]:
    """The scarce resources.

    Raises:
        BadScarceArgs: a field is unknown or of the wrong type.
    """
    return frozenset(decode_args(raw, _Args, source, BadScarceArgs).resources or ())
