"""NodeResourcesFitPlusArgs. Source: spec/scheduler-core.md 5; spec/api.md 4.3."""

from collections.abc import Mapping
from typing import Any

import msgspec

from services.scheduler.plugins.helper.plugin_args import decode_args
from shared.errors import KoordError


class BadFitPlusArgs(KoordError):
    """NodeResourcesFitPlusArgs that cannot be used."""


class Preference(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Strategy and weight of one resource; an unknown strategy scores 0 and keeps its weight, as upstream has it."""

    type: str = ""
    weight: int = 0


class _Args(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    resources: dict[str, Preference] | None = None


def read_fit_plus_args(raw: Mapping[str, Any], source: str) -> Mapping[str, Preference]:
    """Resource -> its strategy and weight.

    Raises:
        BadFitPlusArgs: a field is unknown or of the wrong type, or a weight is negative or beyond 2^31 - 1.
    """
    resources = decode_args(raw, _Args, source, BadFitPlusArgs).resources or {}
    for name, preference in resources.items():
        if not 0 <= preference.weight < 1 << 31:
            raise BadFitPlusArgs(f"{source}: resources[{name}].weight is {preference.weight}; give a number from 0 up")
    return resources
