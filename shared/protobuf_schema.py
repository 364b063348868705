"""Protobuf messages that are declared in code: only the fields that are read or written, without generated files.

Unknown fields of a message are kept when it is serialized again.
"""

from collections.abc import Mapping
from typing import Any

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

Fields = Mapping[str, tuple[int, str]]
"""Field name -> (number, type): `string`, `Mount`, `repeated Mount`, `map` (of strings to strings)."""

MESSAGE, ENTRY = FieldDescriptorProto.TYPE_MESSAGE, "Entry"
_SCALARS = {
    "string": FieldDescriptorProto.TYPE_STRING,
    "bytes": FieldDescriptorProto.TYPE_BYTES,
    "bool": FieldDescriptorProto.TYPE_BOOL,
    "int32": FieldDescriptorProto.TYPE_INT32,
    "int64": FieldDescriptorProto.TYPE_INT64,
    "uint32": FieldDescriptorProto.TYPE_UINT32,
    "uint64": FieldDescriptorProto.TYPE_UINT64,
}


def message_classes(package: str, messages: Mapping[str, Fields]) -> dict[str, Any]:
    """Returns a class for each message.

    Args:
        package: of all of them.
        messages: fields by message; a type that is no scalar is another message of them.
    """
    file = FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            _add_field(message, field, number, kind, f".{package}")
    pool = DescriptorPool()
    pool.Add(file)
    return {name: GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in messages}


def _add_field(message: DescriptorProto, name: str, number: int, kind: str, package: str) -> None:
    field = message.field.add(name=name, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL)
    if kind == "map":
        entry = message.nested_type.add(name="".join(part.capitalize() for part in name.split("_")) + ENTRY)
        entry.options.map_entry = True
        _add_field(entry, "key", 1, "string", package)
        _add_field(entry, "value", 2, "string", package)
        field.label, field.type = FieldDescriptorProto.LABEL_REPEATED, MESSAGE
        field.type_name = f"{package}.{message.name}.{entry.name}"
        return
    repeated, _, kind = kind.rpartition(" ")
    if repeated:
        field.label = FieldDescriptorProto.LABEL_REPEATED
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        field.type, field.type_name = MESSAGE, f"{package}.{kind}"
