"""Probable mistakes about pods and Reservations that wait."""

import msgspec
import pytest

from services.scheduler.explain.probable_mistakes import probable_mistakes
from services.scheduler.explain.waiting_order_config import rules_in_force
from shared.kube.elastic_quota import QUOTA_NAME
from shared.kube.node import NodeMetric
from tests.support.reservations import observe, reservation
from tests.support.scheduling_world import World, metric, node, pod
from tests.unit.scheduler.scheduler_with_ledger import Teams, quota

GPU = "koordinator.sh/gpu"


def found(world: World, name: str, *, shadowed: str = "") -> tuple[str, ...]:
    world.read()
    world.view.read()
    rules = rules_in_force(world.view)._replace(shadowed=shadowed)
    [record] = [each for each in world.view.pods.values() if each.name == name]
    return probable_mistakes(world.view, rules, record)


def one_node(**extra: str) -> World:
    world = World()
    world.add_node(node("n1", cpu="8", extra={name.replace("_", "/"): size for name, size in extra.items()}))
    return world


@pytest.mark.parametrize(
    ("requests", "words"),
    [
        ({GPU: "100"}, f"it requests {GPU} 100, and no node reports devices of type gpu: `koord devices`"),
        ({GPU + "s": "1"}, f"it requests {GPU}s 1, and no node has any; perhaps '{GPU}' is meant"),
        (
            {"kubernetes.io/batch-memroy": "1Gi"},
            "it requests kubernetes.io/batch-memroy 1Gi, and no node has any; perhaps 'kubernetes.io/batch-memory' is meant",
        ),
        ({"koordinator.sh/rdma": "1"}, "no node reports devices of type rdma"),
        ({"example.com/dongle": "1"}, "it requests example.com/dongle 1, and no node has any"),
    ],
)
def test_a_resource_that_no_node_has_is_named(requests: dict[str, str], words: str) -> None:
    world = one_node()
    world.add_pod(pod("p", extra=requests))
    [mistake] = found(world, "d/p")
    assert words in mistake


def test_batch_resources_that_no_node_has_are_traced_to_the_usage_reports() -> None:
    world = one_node()
    world.add_pod(pod("p", extra={"kubernetes.io/batch-memory": "1Gi"}))
    start = "it requests kubernetes.io/batch-memory 1Gi, and no node has any: "
    silent = "nodes get it by their usage reports, and none reports: run `koord run node-agent` on them"
    [mistake] = found(world, "d/p")
    assert mistake.startswith(start + silent)
    empty = msgspec.convert({"metadata": {"name": "n1"}}, NodeMetric)  # as the SLO controller creates it
    world.report(empty)
    assert found(world, "d/p") == (mistake,)
    world.report(metric("n1", cpu="1"))
    assert found(world, "d/p") == (
        start
        + "nodes get it where over-commitment is on and their use leaves some; `koord explain node` shows it of each",
    )


def test_a_request_of_devices_that_nothing_allocates_is_named_whatever_nodes_have() -> None:
    world = World()
    world.add_node(node("n1", extra={GPU: "800"}))
    world.add_pod(pod("odd", extra={GPU: "150"}))
    world.add_pod(pod("even", extra={GPU: "200"}))
    assert found(world, "d/odd") == (f"invalid resource unit {GPU}: 150",)
    assert found(world, "d/even") == ()


def test_a_reservation_for_a_node_that_does_not_exist_is_named() -> None:
    world = one_node()
    for name, pinned in (("lost", "n7"), ("kept", "n1")):
        observe(world, reservation(name, template={"nodeName": pinned}))
    [mistake] = found(world, "lost")
    assert mistake.startswith("its nodeName is 'n7', and there is no such node")
    assert found(world, "kept") == ()


def test_a_pod_above_the_max_of_its_quota_can_never_fit() -> None:
    world = Teams(quota("good", "4", "8"))
    world.add_pod(pod("large", cpu="20", labels={QUOTA_NAME: "good"}))
    world.add_pod(pod("small", cpu="8", labels={QUOTA_NAME: "good"}))
    assert found(world, "d/large") == (
        "it is larger than its quota: it requests cpu 20, and the max of quota good is 8",
    )
    assert found(world, "d/small") == ()


def test_a_label_of_a_missing_quota_is_named_with_the_one_that_is_meant() -> None:
    world = Teams(quota("good", "4", "8"))
    for name, label in (("case", "Good"), ("none", "nosuchquota"), ("right", "good")):
        world.add_pod(pod(name, labels={QUOTA_NAME: label}))
    text = f"label {QUOTA_NAME} names quota {{!r}}, which does not exist: the pod counts in koordinator-default-quota"
    assert found(world, "d/case") == (text.format("Good") + "; perhaps 'good' is meant",)
    assert found(world, "d/none") == (text.format("nosuchquota"),)
    assert found(world, "d/right") == ()


def test_the_scheduler_that_shadow_mode_compares_with_is_no_mistake() -> None:
    world = one_node()
    world.add_pod(pod("theirs", scheduler="default-scheduler"))
    assert "no profile is named" in found(world, "d/theirs")[0]
    assert found(world, "d/theirs", shadowed="default-scheduler") == ()
