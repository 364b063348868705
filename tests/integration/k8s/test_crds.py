"""The schemas of k8s/crds: accepted, kept, defaulted and refused fields."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from cli.dev.kube_client import ApiRefused, Object
from tests.integration.k8s.crd_inventory import K8S, NAMES, Store, content, definition, read


@pytest.mark.parametrize("name", NAMES)
def test_a_full_object_is_read_back_as_it_was_written(store: Store, name: str) -> None:
    written = read(name)
    assert content(store.create(written)) == content(written)


@pytest.mark.parametrize("name", NAMES)
def test_a_full_object_has_every_field_of_its_schema(name: str) -> None:
    written = read(name)
    row, version = definition(written)
    schemas = yaml.safe_load((K8S / "crds" / f"{row.name}.yaml").read_text())["spec"]["versions"]
    schema = next(item["schema"]["openAPIV3Schema"] for item in schemas if item["name"] == version)
    empty = {"status"} if row.kind in {"NodeSLO", "ClusterColocationProfile"} else set()  # never has a field
    assert set(missing(schema, [written], "")) == empty


def missing(schema: Object, found: list[Any], path: str) -> Iterator[str]:
    """Returns the paths of a schema that no object of `found` uses; the objects are all at one place of it."""
    for key, inner in schema.get("properties", {}).items():
        below = [item[key] for item in found if isinstance(item, dict) and key in item]
        if below:
            yield from missing(inner, below, f"{path}.{key}".lstrip("."))
        else:
            yield f"{path}.{key}".lstrip(".")
    if "items" in schema:
        yield from missing(schema["items"], [one for item in found for one in item], f"{path}[]")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from missing(
            schema["additionalProperties"], [one for item in found for one in item.values()], f"{path}.*"
        )


def test_a_topology_written_in_one_version_is_read_in_the_other(store: Store) -> None:
    written = read("noderesourcetopology")
    stored = store.create(written)
    row, _ = definition(written)
    other = store.api.call("GET", f"{row.collection('', 'v1alpha2')}/{stored['metadata']['name']}")
    assert content(other) == content(written)


RESERVATION: Object = {
    "apiVersion": "scheduling.koordinator.sh/v1alpha1",
    "kind": "Reservation",
    "metadata": {},
    "spec": {"owners": [{"labelSelector": {}}], "template": {"spec": {}}},
}


def with_field(desired: Object, path: str, value: object) -> Object:
    """Returns a copy with `value` at a path such as spec/owners/0; None removes the field, numbers index lists."""
    changed: Any = copy.deepcopy(desired)
    *outer, last = (int(part) if part.isdigit() else part for part in path.split("/"))
    place = changed
    for part in outer:
        place = place[part] if isinstance(part, int) else place.setdefault(part, {})
    if value is None:
        del place[last]
    else:
        place[last] = value
    return dict(changed)


def test_a_reservation_defaults_to_one_day_and_one_pod(store: Store) -> None:
    stored = store.create(with_field(RESERVATION, "spec/preAllocationPolicy", {}))
    assert (stored["spec"]["ttl"], stored["spec"]["allocateOnce"]) == ("24h", True)
    assert stored["spec"]["preAllocationPolicy"] == {"mode": "Default", "enableMultiple": False}
    assert "allocatePolicy" not in stored["spec"]
    assert store.create(RESERVATION | {"status": {"nodeName": "node-1"}})["status"]["phase"] == "Pending"


def test_defaults_of_the_published_schemas_are_filled_in(store: Store) -> None:
    network = store.create(with_field(bare("nodeslo"), "spec/resourceQOSStrategy/beClass/networkQOS", {}))
    assert network["spec"]["resourceQOSStrategy"]["beClass"]["networkQOS"] == {
        "ingressRequest": 0,
        "ingressLimit": 100,
        "egressRequest": 0,
        "egressLimit": 100,
    }
    assert store.create(bare("scheduleexplanation"))["spec"] == {"ttl": "24h"}
    assert store.create(with_field(bare("device"), "spec/devices", [{"type": "gpu"}]))["spec"]["devices"] == [
        {"type": "gpu", "health": False}
    ]


def bare(name: str) -> Object:
    return {key: value for key, value in read(name).items() if key in {"apiVersion", "kind"}} | {
        "metadata": {},
        "spec": {},
    }


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("nodeslo", "spec/systemStrategy/totalNetworkBandwidth", 0),
        ("nodeslo", "spec/resourceQOSStrategy/lsClass/networkQOS/ingressLimit", "50M"),
        ("nodeslo", "spec/resourceQOSStrategy/lsClass/networkQOS/ingressLimit", 50),
        ("clustercolocationprofile", "spec/probability", 30),
        ("clustercolocationprofile", "spec/probability", "100%"),
        ("elasticquota", "spec/max/cpu", 4),
        ("elasticquota", "spec/max/cpu", "4"),
        ("elasticquota", "spec/max/cpu", "+1.5e3"),
        ("elasticquota", "spec/max/memory", ".5Ti"),
        # Left to the admission check of the ConfigMap, which may be off.
        ("nodeslo", "spec/resourceQOSStrategy/lsClass/cpuQOS/groupIdentity", 3),
        ("nodeslo", "spec/cpuBurstStrategy/cfsQuotaBurstPercent", 50),
        ("nodeslo", "spec/systemStrategy/watermarkScaleFactor", 401),
        # Maps whose keys other clients may add.
        ("device", "spec/devices", [{"type": "xpu", "health": True}]),
        ("podmigrationjob", "spec/mode", ""),
        # A client in Go writes these as null when they are empty.
        ("reservation", "spec/template", {"metadata": {"creationTimestamp": None}, "spec": {"containers": None}}),
    ],
)
def test_a_value_is_kept_as_it_was_written(store: Store, name: str, field: str, value: object) -> None:
    stored: Any = store.create(with_field(read(name), field, value))
    for part in field.split("/"):
        stored = stored[part]
    assert stored == value


def test_an_empty_patch_of_a_profile_may_be_null(store: Store) -> None:
    profile = bare("clustercolocationprofile") | {"spec": {"qosClass": "BE", "patch": None}}
    assert store.create(profile)["spec"]["qosClass"] == "BE"


QOS = "spec/resourceQOSStrategy/beClass"
USED = "spec/resourceUsedThresholdWithBE"


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("nodemetric", "spec/metricCollectPolicy/nodeMemoryCollectPolicy", "usageOfTomorrow"),
        ("nodemetric", "spec/metricCollectPolicy/reportIntervalSeconds", "60"),
        ("nodemetric", "status/nodeMetric/numaUsages", [{}]),
        ("nodemetric", "status/nodeMetric/nodeUsage/resources/cpu", "3 cores"),
        ("nodemetric", "status/updateTime", "yesterday"),
        ("nodeslo", f"{USED}/cpuSuppressThresholdPercent", 101),
        ("nodeslo", f"{USED}/memoryEvictThresholdPercent", -1),
        ("nodeslo", f"{USED}/cpuAllocatableEvictThresholdPercent", -1),
        ("nodeslo", f"{USED}/cpuSuppressPolicy", "cpushares"),
        ("nodeslo", f"{USED}/cpuEvictPolicy", "evictByMood"),
        ("nodeslo", f"{USED}/cpuEvictTimeWindowSeconds", 0),
        ("nodeslo", f"{USED}/allocatableEvictPriorityThreshold", 8000),
        ("nodeslo", "spec/resourceQOSStrategy/policies/cpuPolicy", "bvt"),
        ("nodeslo", "spec/resourceQOSStrategy/policies/netQOSPolicy", "ebpf"),
        ("nodeslo", f"{QOS}/memoryQOS/wmarkMinAdj", -26),
        ("nodeslo", f"{QOS}/memoryQOS/wmarkScalePermill", 0),
        ("nodeslo", f"{QOS}/memoryQOS/priority", 13),
        ("nodeslo", f"{QOS}/memoryQOS/oomKillGroup", 2),
        ("nodeslo", f"{QOS}/memoryQOS/pageCacheLimitPercent", 101),
        ("nodeslo", f"{QOS}/resctrlQOS/mbaPercent", 101),
        ("nodeslo", f"{QOS}/blkioQOS/blocks/0/type", "tape"),
        ("nodeslo", f"{QOS}/blkioQOS/blocks/0/ioCfg/ioWeightPercent", 0),
        ("nodeslo", f"{QOS}/blkioQOS/blocks/0/ioCfg/readIOPS", -1),
        ("nodeslo", f"{QOS}/blkioQOS/blocks/0/ioCfg/modelReadBPS", 0),
        ("nodeslo", f"{QOS}/networkQOS/ingressLimit", 101),
        ("nodeslo", "spec/cpuBurstStrategy/policy", "always"),
        ("nodeslo", "spec/cpuBurstStrategy/cpuBurstPercent", 10001),
        ("nodeslo", "spec/hostApplications/0/cgroupPath/base", "Root"),
        ("reservation", "spec/owners", []),
        ("reservation", "spec/owners/0", {}),
        ("reservation", "spec/owners/1/controller/uid", None),
        ("reservation", "spec/template", None),
        ("reservation", "spec/allocatePolicy", "Default"),
        ("reservation", "spec/preAllocationPolicy/mode", "Node"),
        ("reservation", "spec/taints/0/effect", None),
        ("reservation", "status/phase", "Bound"),
        ("reservation", "status/conditions/0/type", "Bound"),
        ("device", "spec/devices/0/topology/pcieID", None),
        ("device", "spec/devices/1/vfGroups/0/vfs/0/minor", None),
        ("podmigrationjob", "spec/podRef", None),
        ("podmigrationjob", "status/conditions/0/type", None),
        ("elasticquota", "spec/max/cpu", "four"),
        ("elasticquota-alias", "spec/min/memory", "1 Gi"),
        ("podgroup", "spec/minMember", 1.5),
        ("clustercolocationprofile", "spec/qosClass", "BestEffort"),
        ("clustercolocationprofile", "spec/probability", 0.5),
        ("elasticquotaprofile", "spec/quotaName", None),
        ("elasticquotaprofile", "spec/nodeSelector", None),
        ("clusternetworktopology", "spec/networkTopologySpec/0/topologyLayer", None),
        ("clusternetworktopology", "status/detailStatus/0/nodeNum", None),
        ("recommendation", "spec/target/type", "namespace"),
        ("recommendation", "spec/target/workload/kind", None),
        ("noderesourcetopology", "topologyPolicies", None),
        ("noderesourcetopology", "zones/0/resources/0/available", None),
        ("noderesourcetopology-v1alpha2", "zones", None),
    ],
)
def test_a_value_outside_a_range_or_an_enum_is_rejected_by_name(
    store: Store, name: str, field: str, value: object
) -> None:
    with pytest.raises(ApiRefused) as refused:
        store.create(with_field(read(name), field, value))
    assert refused.value.status == 422
    where = "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in field.split("/")).lstrip(".")
    assert where in str(refused.value)


def test_an_unknown_field_is_named_under_strict_validation(store: Store) -> None:
    with pytest.raises(ApiRefused, match=r'unknown field "spec\.maximum"'):
        store.create(with_field(read("elasticquota"), "spec/maximum", {}))
