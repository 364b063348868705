"""Amounts that an object of a custom resource has as numbers: `cpu: 4` is the quantity `"4"`.

The API serves quantities of built-in types as texts; a custom resource keeps the written form, and its schema allows
both.
"""

import re
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from shared.errors import KoordError

_AMOUNTS = re.compile(r"resources|usage|overhead|allocatable|allocated|capacity", re.IGNORECASE)
"""Fields with amounts, at any depth below them."""

Kind = TypeVar("Kind")


class UnreadableObject(KoordError):
    """An object of a custom resource that does not match its type.

    Attributes:
        fault: the field and what is wrong with it.
    """

    def __init__(self, fault: str) -> None:
        super().__init__(f"the object cannot be read: {fault}; correct the field")
        self.fault = fault


def amounts_as_text(value: Any, *, are_amounts: bool = False) -> Any:
    """Returns an object as the API has it, with texts for all amounts."""
    if isinstance(value, Mapping):
        return {
            key: amounts_as_text(item, are_amounts=are_amounts or bool(_AMOUNTS.search(key)))
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [amounts_as_text(item, are_amounts=are_amounts) for item in value]
    return str(value) if are_amounts and isinstance(value, int | float) and not isinstance(value, bool) else value


def read_object(body: Any, kind: type[Kind]) -> Kind:
    """Reads an object of a custom resource.

    Raises:
        msgspec.ValidationError: a field has another type.
    """
    try:
        return msgspec.convert(body, kind)
    except msgspec.ValidationError:
        return msgspec.convert(amounts_as_text(body), kind)
