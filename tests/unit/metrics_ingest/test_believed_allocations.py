"""Agents receive the allocation that the scheduler decided, whatever a pod's annotations say."""

from random import Random

import pytest

from services.metrics_ingest.agent_actions.node_pods_and_actions_state import ActionIngestState
from shared.events.cluster import NodeObserved, PodBound, PodDeleted
from shared.kube.meta import Metadata
from shared.kube.node import Node
from shared.kube.pod import Pod
from shared.kube.system_annotations import RESOURCE_STATUS
from tests.support.pods import kept_pod, observed
from tests.unit.metrics_ingest.cluster_history import Logs, fold

FORGED, DECIDED = '{"cpuset":"0-63"}', '{"cpuset":"2-3"}'


def pod(text: str = FORGED) -> Pod:
    annotations = {RESOURCE_STATUS: text, "koordinator.sh/cpuQOS": "{}"}
    return kept_pod("p", uid="uid-p", annotations=annotations, phase="Running", node_name="n", containers=())


def bound(text: str = DECIDED) -> PodBound:
    return PodBound(pod="d/p", pod_uid="uid-p", node="n", allocations={RESOURCE_STATUS: text} if text else {})


def received(logs: Logs) -> dict[str, str] | None:
    (found,) = fold(ActionIngestState, logs.interleaved(Random(0))).node_pods("n").pods
    return found.metadata.annotations


def logs_of(*events: object) -> Logs:
    logs = Logs()
    logs.append("cluster", NodeObserved(node="n", object=Node(metadata=Metadata(name="n"))), *events)  # type: ignore[arg-type]  # events of a test
    return logs


def test_a_pod_that_was_not_placed_here_has_no_allocation() -> None:  # fault 08
    assert received(logs_of(observed(pod()))) == {"koordinator.sh/cpuQOS": "{}"}
    assert received(logs_of(bound(""), observed(pod()))) == {"koordinator.sh/cpuQOS": "{}"}


@pytest.mark.parametrize("text", [FORGED, DECIDED, ""])
def test_the_decided_allocation_replaces_the_annotated_one(text: str) -> None:
    for events in ((bound(), observed(pod(text))), (observed(pod(text)), bound())):
        found = received(logs_of(*events))
        assert found is not None
        assert found[RESOURCE_STATUS] == DECIDED


def test_an_allocation_that_is_read_late_is_published_anew() -> None:
    state = fold(ActionIngestState, logs_of(observed(pod())).contexts["cluster"])
    before = state.node_pods("n").position
    late = fold(ActionIngestState, logs_of(observed(pod()), bound()).contexts["cluster"])
    assert late.node_pods("n").position > before


def test_a_deleted_pod_leaves_nothing_and_the_state_survives_a_restart() -> None:
    logs = logs_of(observed(pod()), bound())
    state = fold(ActionIngestState, logs.contexts["cluster"])
    copy = ActionIngestState()
    copy.restore(state.encode())
    assert (copy.encode(), copy.node_pods("n")) == (state.encode(), state.node_pods("n"))
    logs.append("cluster", PodDeleted(pod="d/p", pod_uid="uid-p"))
    assert fold(ActionIngestState, logs.contexts["cluster"]).allocations == {}
