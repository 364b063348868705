"""Plugins of Kubernetes and Koordinator that this release does not have; their arguments are checked all the same.

A configuration with a mistake is rejected on the day it is written, not on the day its plugin is added.

Source: spec/api.md 4.3; Kubernetes' kubescheduler.config.k8s.io/v1 and its validation.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import msgspec

from services.scheduler.framework.registry import ArgsCheck
from services.scheduler.plugins.helper.plugin_args import check_duration
from shared.closest_name import with_closest_field
from shared.errors import KoordError

Duration = str


class BadArgs(KoordError):
    """Arguments that cannot be used; gives the path, the value and what is allowed."""


class _Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    pass


class _DynamicResources(_Strict, frozen=True):
    filter_timeout: Duration | None = None
    binding_timeout: Duration | None = None


_ARGS: Mapping[str, type[_Strict]] = {
    "DynamicResources": _DynamicResources,
}
"""Plugin -> type of its arguments."""


def _check(plugin: str, raw: Mapping[str, Any], source: str) -> None:
    """Checks the arguments of one of _ARGS.

    Raises:
        BadArgs: a field is unknown, of the wrong type, or out of range.
    """
    given = {name: value for name, value in raw.items() if name not in ("apiVersion", "kind") and value is not None}
    try:
        args = msgspec.convert(given, _ARGS[plugin])
    except msgspec.ValidationError as error:
        raise BadArgs(f"{source}: {with_closest_field(str(error), _ARGS[plugin])}") from error
    match args:
        case _DynamicResources():
            for name in ("filterTimeout", "bindingTimeout"):
                if name in given:
                    check_duration(name, given[name], source, BadArgs)


UNSUPPORTED: Mapping[str, ArgsCheck | None] = {
    "NodeDeclaredFeatures": None,
    **{name: partial(_check, name) for name in _ARGS},
}
"""Plugin -> check of its arguments, if these are known."""
