"""Fields of a JSON document that its type does not have: decoders pass over them, so a typing error sets nothing."""

from collections.abc import Iterator
from typing import Any

from msgspec import inspect

from shared.closest_name import did_you_mean


def unknown_fields(kind: Any, document: Any) -> Iterator[str]:
    """Yields path and closest spelling of each field that is passed over, as `nodeConfigs[0].enabel; perhaps 'enable' is
    meant`.

    Args:
        kind: the type into which the document is decoded.
        document: decoded JSON.
    """
    return _unknown(inspect.type_info(kind), document, "")


def _unknown(info: Any, value: Any, path: str) -> Iterator[str]:
    if isinstance(info, inspect.StructType) and isinstance(value, dict):
        fields = {field.encode_name: field.type for field in info.fields}
        for name, inner in value.items():
            where = f"{path}.{name}" if path else name
            if name in fields:
                yield from _unknown(fields[name], inner, where)
            else:
                yield where + did_you_mean(name, fields)
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
