"""Files generated from the event types, the manifests and k8s/crds: docs/asyncapi.json, docs/schemas/<type>.json,
shared/runtime/declared_intents.py, k8s/rbac, k8s/webhooks/rbac.yaml and cli/dev/custom_resource_fields.json.

python -m tools.generate            writes them
python -m tools.generate --check    fails when they differ from their sources
"""

import sys
from inspect import cleandoc
from pathlib import Path
from typing import Any

import msgspec

from shared.events import CONTEXT_MODULES, EVENT_TYPES
from shared.events.base import Event
from tools.custom_resource_fields import custom_resource_fields
from tools.intent_declarations import declared_intents
from tools.rbac import rbac_files

ROOT = Path(__file__).parents[1]
SCHEMAS = Path("docs/schemas")
DIALECT = "https://json-schema.org/draft/2020-12/schema"
JsonObject = dict[str, Any]


def documents() -> dict[Path, str]:
    """Every generated file: path from the repository's root -> text. The same sources give the same bytes."""
    schemas = {name: schema(kind) for name, kind in sorted(EVENT_TYPES.items())}
    found = {SCHEMAS / f"{name}.json": _text(document) for name, document in schemas.items()}
    found[Path("docs/asyncapi.json")] = _text(asyncapi())
    found[Path("shared/runtime/declared_intents.py")] = declared_intents()
    found[Path("cli/dev/custom_resource_fields.json")] = custom_resource_fields()
    found.update(rbac_files())
    return found


def schema(kind: type[Event]) -> JsonObject:
    """The JSON Schema of an event's data: what the log stores, and a CloudEvent's `data` member."""
    (reference,), components = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    own = components.pop(reference["$ref"].rpartition("/")[2])
    document = {"$schema": DIALECT, "$id": f"{kind.type_name()}.json", **own, "title": kind.type_name()}
    if components:
        document["$defs"] = dict(sorted(components.items()))
    tidied: JsonObject = _tidy(document)
    return tidied


def asyncapi() -> JsonObject:
    """The AsyncAPI document: one channel per area of type names, one message per event type."""
    messages = {name: _message(name, kind) for name, kind in sorted(EVENT_TYPES.items())}
    channels = {}
    for area, modules in sorted(CONTEXT_MODULES.items()):
        declaring = {module.__name__ for module in modules}
        names = [name for name, kind in sorted(EVENT_TYPES.items()) if kind.__module__ in declaring]
        channels[area] = {
            "address": "koord.log.{context}",
            "description": "\n\n".join(cleandoc(module.__doc__ or "") for module in modules),
            "parameters": {
                "context": {"description": "The context whose writer announced the batch that holds the event."}
            },
            "messages": {_identifier(name): {"$ref": f"#/components/messages/{_identifier(name)}"} for name in names},
        }
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Koordstream events",
            "version": "1",
            "description": "Every event that a Koordstream log may hold, by the name it is stored under.",
            "license": {"name": "Apache-2.0", "url": "https://www.apache.org/licenses/LICENSE-2.0"},
        },
        "defaultContentType": "application/json",
        "channels": channels,
        "operations": {
            f"hear-{area}": {
                "action": "receive",
                "channel": {"$ref": f"#/channels/{area}"},
                "messages": [{"$ref": f"#/channels/{area}/messages/{name}"} for name in channel["messages"]],
            }
            for area, channel in channels.items()
        },
        "components": {"messages": {_identifier(name): message for name, message in messages.items()}},
    }


def _message(name: str, kind: type[Event]) -> JsonObject:
    return {
        "name": name,
        "title": kind.__name__,
        "summary": cleandoc(kind.__doc__ or "").partition("\n")[0],
        "payload": {"$ref": f"schemas/{name}.json"},
    }


def _identifier(name: str) -> str:
    return name.replace(".", "-")


def _tidy(value: Any) -> Any:
    """Docstrings without their indentation, names in order where order says nothing."""
    if isinstance(value, dict):
        return {
            name: cleandoc(item) if name == "description" and isinstance(item, str) else _tidy(item)
            for name, item in value.items()
        }
    return [_tidy(item) for item in value] if isinstance(value, list) else value


def _text(document: JsonObject) -> str:
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def main(arguments: list[str]) -> str | None:
    """Writes, or compares; the text of what differs, None when nothing does."""
    expected = documents()
    stale = {path.relative_to(ROOT) for path in (ROOT / SCHEMAS).glob("*.json")} - expected.keys()
    if arguments == ["--check"]:
        differing = [
            path for path, text in expected.items() if not (ROOT / path).exists() or (ROOT / path).read_text() != text
        ]
        differing += sorted(stale)
        names = ", ".join(str(path) for path in differing)
        return f"{names} differ from what they are made from; run `make generate` and commit" if differing else None
    (ROOT / SCHEMAS).mkdir(parents=True, exist_ok=True)
    for path in stale:
        (ROOT / path).unlink()
    for path, text in expected.items():
        (ROOT / path).write_text(text)
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
