"""Strategic merge of pods."""

from typing import Any

import pytest

from shared.kube.strategic_merge import BadPatch, merged

AB = [{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]


@pytest.mark.parametrize(
    ("original", "patch", "result"),
    [
        ({"a": {"x": 1, "y": 2}}, {"a": {"y": None, "z": 3}}, {"a": {"x": 1, "z": 3}}),
        ({"a": {"x": 1}}, {"a": {"$patch": "replace", "z": 3}}, {"a": {"z": 3}}),
        ({"a": {"x": 1}, "b": 1}, {"a": {"$patch": "delete"}}, {"a": {}, "b": 1}),
        ({"tolerations": [{"key": "a"}]}, {"tolerations": [{"key": "b"}]}, {"tolerations": [{"key": "b"}]}),
        ({"containers": AB}, {"containers": [{"name": "b", "image": "2"}, {"name": "c"}]},
         {"containers": [AB[0], {"name": "b", "image": "2"}, {"name": "c"}]}),
        ({"containers": AB}, {"containers": [{"name": "a", "$patch": "delete"}]}, {"containers": [AB[1]]}),
        ({"containers": AB}, {"containers": [{"$patch": "replace"}, {"name": "c"}]}, {"containers": [{"name": "c"}]}),
        ({"containers": AB}, {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}, {"containers": AB[::-1]}),
        ({"finalizers": ["a"]}, {"finalizers": ["a", "b"]}, {"finalizers": ["a", "b"]}),
        ({"finalizers": ["a", "b"]}, {"$deleteFromPrimitiveList/finalizers": ["a"]}, {"finalizers": ["b"]}),
        ({"strategy": {"type": "x", "old": 1}}, {"strategy": {"$retainKeys": ["type"], "type": "y"}}, {"strategy": {"type": "y"}}),
        ({}, {"new": {"deep": {"x": None, "y": 1}}}, {"new": {"deep": {"y": 1}}}),
    ],
)  # fmt: skip
def test_a_patch_merges_as_the_api_server_merges_it(
    original: dict[str, Any], patch: dict[str, Any], result: dict[str, Any]
) -> None:
    assert merged(original, patch) == result


@pytest.mark.parametrize("patch", [{"$patch": "burn"}, {"containers": [{"image": "i"}]}])
def test_a_patch_that_cannot_be_applied_is_an_error(patch: dict[str, Any]) -> None:
    with pytest.raises(BadPatch):
        merged({"containers": AB}, patch)
