"""The pods of a node as agents receive them."""

import pytest

from shared.agents import node_pods
from shared.agents.node_pods import BadNodePods, NodePods, agent_pod
from shared.kube.meta import Metadata
from shared.kube.pod import Container, Pod, PodSpec, PodStatus, ResourceRequirements, Toleration


def test_a_published_pod_has_only_the_fields_that_agents_read() -> None:
    pod = Pod(
        metadata=Metadata(
            name="web", namespace="default", uid="api", labels={"app": "web", "koordinator.sh/qosClass": "LS"}
        ),
        spec=PodSpec(
            node_name="n",
            priority=9_000,
            tolerations=(Toleration(key="k"),),
            containers=(Container(name="c", image="i", resources=ResourceRequirements(limits={"cpu": "1"})),),
        ),
        status=PodStatus(phase="Running", qos_class="Burstable", start_time="2026-01-01T00:00:00Z"),
    )
    seen = agent_pod(pod, "node-uid")
    assert seen.metadata.uid == "node-uid"
    assert seen.metadata.labels == {"koordinator.sh/qosClass": "LS"}
    assert seen.spec.containers == (Container(name="c", resources=ResourceRequirements(limits={"cpu": "1"})),)
    assert (seen.spec.tolerations, seen.status.start_time) == ((), None)
    message = NodePods("n", 1, 7, pods=(seen,))
    assert node_pods.decode(node_pods.encode(message), "n") == message


def test_the_pods_of_another_node_are_rejected() -> None:
    with pytest.raises(BadNodePods, match="another node than its topic"):
        node_pods.decode(node_pods.encode(NodePods("other", 1, 1)), "n")


def test_an_invalid_value_is_rejected_with_its_field() -> None:
    with pytest.raises(BadNodePods, match="epoch"):
        node_pods.decode(b'{"node":"n","epoch":"x","seq":1}', "n")
