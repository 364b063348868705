"""The generated documents say what the event types say, in the same bytes every time."""

import json
import os
import subprocess
import sys

import jsonschema
import msgspec
import pytest

from cli.service_list import SERVICES, load
from shared.events import EVENT_TYPES
from shared.events.cluster import NodeObserved
from shared.events.scheduling import ClassEvaluated, CycleDecided, PodOutcome, PodPlaced
from shared.kube.meta import Metadata
from shared.kube.node import Node, NodeStatus
from tools.generate import asyncapi, documents, schema

PLACED = PodPlaced(pod_uid="u", pod="default/web", node="n1", cycle=1, request={"cpu": 500})
EXAMPLES = [
    PLACED,
    CycleDecided(
        cycle=1, pods=(PodOutcome("u", 0, "n1"),), classes=(ClassEvaluated(3, 2),), seen={"cluster": 7}, now_ns=1
    ),
    NodeObserved(node="n1", object=Node(metadata=Metadata(name="n1"), status=NodeStatus(capacity={"cpu": "32"}))),
]


@pytest.mark.parametrize("name", EVENT_TYPES)
def test_every_schema_is_a_schema(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(schema(EVENT_TYPES[name]))


@pytest.mark.parametrize("event", EXAMPLES, ids=lambda event: type(event).__name__)
def test_what_the_log_stores_fits_its_schema(event: msgspec.Struct) -> None:
    jsonschema.validate(json.loads(msgspec.json.encode(event)), schema(type(event)))  # type: ignore[arg-type]


def test_an_event_without_its_node_does_not_fit() -> None:
    data = {name: value for name, value in json.loads(msgspec.json.encode(PLACED)).items() if name != "node"}
    with pytest.raises(jsonschema.ValidationError, match="'node' is a required property"):
        jsonschema.validate(data, schema(PodPlaced))


def test_every_message_of_the_asyncapi_document_has_its_schema_beside_it() -> None:
    files = {str(path).removeprefix("docs/") for path in documents() if str(path).startswith("docs/")}
    messages = asyncapi()["components"]["messages"].values()
    assert {message["payload"]["$ref"] for message in messages} == files - {"asyncapi.json"}


@pytest.mark.parametrize("name", SERVICES)
def test_every_type_that_a_service_writes_or_folds_is_documented(name: str) -> None:
    """Its context and bus subject carry it: a client of the event stream looks it up in the document."""
    declared = load(name)
    kinds = {*declared.emits, *(kind for kinds in declared.follows.values() for kind in kinds)}
    messages = asyncapi()["components"]["messages"].values()
    assert {kind.type_name() for kind in kinds} <= {message["name"] for message in messages}


def test_every_reference_within_the_asyncapi_document_leads_somewhere() -> None:
    document = asyncapi()
    for operation in document["operations"].values():
        for message in operation["messages"]:
            _, _, channel, _, name = message["$ref"].split("/")
            target = document["channels"][channel]["messages"][name]["$ref"].split("/")[-1]
            assert target in document["components"]["messages"]


def test_the_same_types_yield_the_same_bytes() -> None:
    program = "import hashlib; from tools.generate import documents; print(hashlib.sha256(repr(documents()).encode()).hexdigest())"
    runs = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        )
        for seed in ("0", "1")
    ]
    assert runs[0].stdout == runs[1].stdout
