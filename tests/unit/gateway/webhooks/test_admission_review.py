"""AdmissionReview requests and responses."""

import json
from base64 import b64decode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.gateway.webhooks import admission_review
from services.gateway.webhooks.admission_review import BadReview, Request
from services.gateway.webhooks.json_patch import patch

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(2, 5) | st.text("a/~b", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("a/~b", max_size=2), inner, max_size=3),
    max_leaves=12,
)


def apply(value: Any, steps: list[dict[str, Any]]) -> Any:
    """Applies a JSON Patch (RFC 6902) with the operations that we use."""
    holder = {"root": json.loads(json.dumps(value))}
    for step in steps:
        names = [part.replace("~1", "/").replace("~0", "~") for part in ("/root" + step["path"]).split("/")[1:]]
        target: Any = holder
        for name in names[:-1]:
            target = target[int(name)] if isinstance(target, list) else target[name]
        last: Any = int(names[-1]) if isinstance(target, list) else names[-1]
        if step["op"] == "remove":
            del target[last]
        else:
            assert (step["op"] == "add") == (isinstance(target, dict) and last not in target)
            target[last] = step["value"]
    return holder["root"]


@given(JSON, JSON)
def test_a_patch_turns_one_value_into_the_other(before: Any, after: Any) -> None:
    assert json.dumps(apply(before, patch(before, after)), sort_keys=True) == json.dumps(after, sort_keys=True)


def test_only_what_differs_is_in_a_patch() -> None:
    before = {"metadata": {"labels": {"a": "1", "b/c": "2"}}, "spec": {"containers": [{"name": "m"}, {"name": "n"}]}}
    after = {"metadata": {"labels": {"a": "1"}}, "spec": {"containers": [{"name": "m"}, {"name": "n", "x": True}]}}
    assert patch(before, after) == [
        {"op": "remove", "path": "/metadata/labels/b~1c"},
        {"op": "add", "path": "/spec/containers/1/x", "value": True},
    ]
    assert patch(after, after) == []


def test_an_object_that_is_not_changed_needs_no_patch() -> None:
    request = Request(uid="u", operation="CREATE", object={"a": 1})
    assert json.loads(admission_review.allowed(request, {"a": 1}))["response"] == {"uid": "u", "allowed": True}
    changed = json.loads(admission_review.allowed(request, {"a": 2}))["response"]
    assert changed["patchType"] == "JSONPatch"
    assert json.loads(b64decode(changed["patch"])) == [{"op": "replace", "path": "/a", "value": 2}]
    assert json.loads(admission_review.refused(request, 400, "device", "no"))["response"]["status"] == {
        "status": "Failure", "code": 400, "reason": "device", "message": "no",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"x", "no AdmissionReview"),
        (b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}', "no AdmissionReview"),
        (b'{"apiVersion":"admission.k8s.io/v1beta1","request":{"uid":"u","operation":"CREATE"}}', "v1beta1"),
    ],
)
def test_a_body_that_is_no_review_is_an_error(body: bytes, message: str) -> None:
    with pytest.raises(BadReview, match=message):
        admission_review.read(body)
