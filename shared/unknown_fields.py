"""Fields of a JSON document that its type does not have: decoders pass over them, so a typing error sets nothing."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from msgspec import inspect

from shared.closest_name import did_you_mean


class UnknownField(NamedTuple):
    """A field that is passed over.

    Attributes:
        path: in the document, such as `nodeConfigs[0].enabel`.
        meant: `; perhaps 'enable' is meant`; empty where no known field is close.
    """

    path: str
    meant: str


def unknown_fields(kind: Any, document: Any) -> Iterator[UnknownField]:
    """Yields each field that is passed over.

    Args:
        kind: the type into which the document is decoded.
        document: decoded JSON.
    """
    return _unknown(inspect.type_info(kind), document, "")


def _unknown(info: Any, value: Any, path: str) -> Iterator[UnknownField]:
    if isinstance(info, inspect.StructType) and isinstance(value, dict):
        fields = {field.encode_name: field.type for field in info.fields}
        for name, inner in value.items():
            where = f"{path}.{name}" if path else name
            if name in fields:
                yield from _unknown(fields[name], inner, where)
            else:
                yield UnknownField(where, did_you_mean(name, fields))
    elif isinstance(info, inspect.UnionType):
        for each in info.types:
            if isinstance(each, inspect.StructType | inspect.CollectionType | inspect.DictType):
                yield from _unknown(each, value, path)
    elif isinstance(info, inspect.CollectionType) and isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _unknown(info.item_type, inner, f"{path}[{index}]")
    elif isinstance(info, inspect.DictType) and isinstance(value, dict):
        for name, inner in value.items():
            yield from _unknown(info.value_type, inner, f"{path}.{name}" if path else name)
