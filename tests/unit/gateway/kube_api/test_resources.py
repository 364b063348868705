"""Paths of resources, compared with the manifests that install them."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from services.gateway.kube_api.resources import CONFIG_MAPS, PODS, RESOURCES, watched_resources

K8S = Path(__file__).parents[4] / "k8s"


def definitions() -> dict[str, dict[str, Any]]:
    files = sorted((K8S / "crds").glob("*.*.yaml"))
    found = [yaml.safe_load(file.read_text()) for file in files]
    return {item["metadata"]["name"]: item["spec"] for item in found if item["kind"] == "CustomResourceDefinition"}


def test_every_custom_resource_that_is_installed_is_known() -> None:
    built_in = {"apps", "policy", "scheduling.k8s.io", "storage.k8s.io"}
    built_in |= {"apps.kruise.io"}  # of OpenKruise, where that is installed
    groups = {name: name.partition(".")[2] for name in RESOURCES}
    assert set(definitions()) == {name for name, group in groups.items() if group and group not in built_in}


@pytest.mark.parametrize("name", sorted(definitions()))
def test_a_custom_resource_has_the_path_of_its_definition(name: str) -> None:
    resource, spec = RESOURCES[name], definitions()[name]
    group, version = resource.api_version.split("/")
    served = {entry["name"] for entry in spec["versions"] if entry["served"]}
    assert (group, resource.kind, resource.plural) == (spec["group"], spec["names"]["kind"], spec["names"]["plural"])
    assert resource.namespaced == (spec["scope"] == "Namespaced")
    assert version in served


def test_config_maps_are_watched_in_one_namespace() -> None:
    (maps,) = [resource for resource in watched_resources("koordinator-system") if resource.name == CONFIG_MAPS.name]
    assert maps.watched_path == "/api/v1/namespaces/koordinator-system/configmaps"
    written_only = {"events"}
    assert {resource.name for resource in watched_resources("")} == set(RESOURCES) - written_only


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("shop/web-0", "/api/v1/namespaces/shop/pods/web-0"),
        ("shop/../../x", "/api/v1/namespaces/shop%2F%2E%2E%2F%2E%2E/pods/x"),
        ("shop/..", "/api/v1/namespaces/shop/pods/%2E%2E"),
        ("shop/a?b", "/api/v1/namespaces/shop/pods/a%3Fb"),
    ],
)
def test_a_name_never_becomes_another_path(key: str, path: str) -> None:
    assert PODS.path(key) == path
