"""The pods of the observed cluster: one for each name, with those that are absent from their workload; the nodes in the
form that plugins read, of those that exist.
"""

from msgspec.structs import replace

from services.descheduler.state.measured_nodes import SPARE_NODES, MeasuredNodes
from services.descheduler.state.observed_cluster import ObservedCluster
from services.descheduler.state.observed_pods import ObservedPods
from shared.events import RecordedEvent
from shared.events.cluster import NodeDeleted, NodeObserved
from shared.kube.meta import Metadata
from shared.kube.node import Node
from shared.kube.pod import Pod
from tests.support.migration import moved_pod, owner

SET = owner("ReplicaSet", "web")


def names(pods: tuple[Pod, ...]) -> list[str]:
    return [pod.metadata.name for pod in pods]


def test_a_pod_takes_its_name_from_the_one_before() -> None:
    pods = ObservedPods()
    first = moved_pod("web-0", controller=SET, node="a", ready=False)
    second = replace(first, metadata=replace(first.metadata, uid="second"), spec=replace(first.spec, node_name="b"))
    pods.put(first)
    pods.put(second)
    assert list(pods.by_uid) == ["second"]
    assert pods.on_node("a") == []
    pods.remove(first.metadata.uid)  # its deletion is observed late
    assert pods.by_key["default/web-0"] is pods.by_uid["second"]
    assert names(pods.unavailable_of([SET.uid], "default")) == ["web-0"]


def test_absent_pods_follow_each_change() -> None:
    pods = ObservedPods()
    ready, unready = moved_pod("b", controller=SET), moved_pod("a", controller=SET, ready=False)
    pods.put(ready)
    pods.put(unready)
    assert names(pods.unavailable_of([SET.uid], "default")) == ["a"]
    assert pods.unavailable_of([SET.uid], "other") == ()
    pods.put(replace(ready, metadata=replace(ready.metadata, deletion_timestamp="2026-01-01T00:00:00Z")))
    assert names(pods.unavailable_of([SET.uid], "default")) == ["a", "b"]
    pods.put(moved_pod("a", controller=SET))
    pods.remove(ready.metadata.uid)
    assert pods.unavailable_of([SET.uid], "default") == ()


def test_nodes_that_are_gone_are_not_kept_for_ever() -> None:
    cluster, measured = ObservedCluster(), MeasuredNodes()
    for number in range(2 * SPARE_NODES):
        name = f"n{number}"
        observed = NodeObserved(node=name, object=Node(metadata=Metadata(name=name, uid=name)))
        cluster.apply(RecordedEvent("cluster", 2 * number + 1, observed, 0))
        (found,) = measured.of(cluster, [name])
        assert found.name == name
        cluster.apply(RecordedEvent("cluster", 2 * number + 2, NodeDeleted(node=name, node_uid=name), 0))
    assert len(measured) <= SPARE_NODES + 4
