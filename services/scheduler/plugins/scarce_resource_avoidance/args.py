"""ScarceResourceAvoidanceArgs. Source: spec/scheduler-core.md 6; spec/api.md 4.3."""

from collections.abc import Mapping
from typing import Any

import msgspec

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
    stated = {name: value for name, value in raw.items() if name not in ("apiVersion", "kind") and value is not None}
    try:
        return frozenset(msgspec.convert(stated, _Args).resources or ())
    except msgspec.ValidationError as error:
        raise BadScarceArgs(f"{source}: {error}") from error
