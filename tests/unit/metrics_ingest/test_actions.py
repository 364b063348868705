"""Actions: checked against the pods of the node, recorded once; an eviction becomes an intent."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from services.metrics_ingest.agent_actions.decide_action import action_events, checked_records, removed_topologies
from services.metrics_ingest.agent_actions.node_pods_and_actions_state import (
    NUMBERS_KEPT,
    ActionIngestState,
    is_recorded,
    with_number,
)
from shared.agents import actions
from shared.agents.actions import (
    ActionReport,
    AnyAction,
    BadAction,
    Burst,
    ContainerHooks,
    EvictionRequested,
    HooksReported,
    PodsRequested,
    Suppressed,
    TopologyReported,
    ZoneReported,
)
from shared.agents.node_pods import BLOCK_IO
from shared.events import Event, intents
from shared.events.cluster import NodeDeleted, NodeObserved, ObjectDeleted, ObjectObserved, PodDeleted
from shared.events.nodes import (
    AgentEvictionRequested,
    BestEffortSuppressed,
    ContainerHooksReported,
    NodeTopologyRemoved,
    NodeTopologyReported,
    PodBurst,
)
from shared.kube.instants import SECOND
from shared.kube.meta import Metadata
from shared.kube.node import Node
from shared.kube.node_resource_topology import CPU_BASIC_INFO
from shared.kube.pod import ClaimSource, EphemeralSource, Volume
from shared.kube.resource_names import CLAIMS
from tests.support.pods import observed
from tests.unit.metrics_ingest.agent_action_reports import interference_events
from tests.unit.metrics_ingest.cluster_history import START_NS, Logs, fold, pod


def action_report(action: AnyAction, number: int = 1, node: str = "a", at_ns: int = START_NS) -> ActionReport:
    return ActionReport(node, "boot", number, at_ns, action)


def events(state: ActionIngestState, action: AnyAction, **fields: object) -> list[Event]:
    report = action_report(action, **fields)  # type: ignore[arg-type]
    return [draft.event for draft in action_events(state, report, max_clock_skew_s=30, now_ns=START_NS)]


@pytest.fixture
def state() -> ActionIngestState:
    logs = Logs()
    for name, node, mirror in (("p", "a", ""), ("elsewhere", "b", ""), ("static", "a", "hash")):
        logs.append("cluster", observed(pod(name, node, mirror=mirror)))
    return fold(ActionIngestState, logs.contexts["cluster"])


def test_an_eviction_of_a_pod_on_the_node_is_recorded_and_requested(state: ActionIngestState) -> None:
    fields = {"node": "a", "boot": "boot", "number": 1, "at_ns": START_NS}
    assert events(state, EvictionRequested("uid-p", "memory is short")) == [
        AgentEvictionRequested(**fields, pod_uid="uid-p", pod="d/p", reason="memory is short"),  # type: ignore[arg-type]
        intents.EvictionRequested(pod_uid="uid-p", pod="d/p", reason="node a: memory is short"),
    ]


@pytest.mark.parametrize(
    ("uid", "why"),
    [("uid-elsewhere", "runs on b"), ("uid-unknown", "no running pod"), ("hash", "static pod"), ("uid-static", "no running pod")],
)  # fmt: skip
def test_an_eviction_of_any_other_pod_is_rejected(state: ActionIngestState, uid: str, why: str) -> None:
    with pytest.raises(BadAction, match=why):
        events(state, EvictionRequested(uid, "because"))


def test_an_action_is_recorded_for_an_unknown_pod_but_not_for_one_on_another_node(
    state: ActionIngestState,
) -> None:
    suppressed, burst, unknown = (
        events(state, Suppressed("cpuset", 2000, "0-1"))[0],
        events(state, Burst("uid-p", cfs_quota_us=200_000))[0],
        events(state, Burst("uid-unknown", cfs_quota_us=-1))[0],
    )
    assert isinstance(suppressed, BestEffortSuppressed)
    assert isinstance(burst, PodBurst)
    assert isinstance(unknown, PodBurst)
    assert (suppressed.cpus, burst.pod, burst.cfs_quota_us, unknown.pod) == ("0-1", "d/p", 200_000, "")
    with pytest.raises(BadAction, match="runs on b"):
        events(state, Burst("uid-elsewhere", cfs_quota_us=-1))


def test_an_action_too_far_ahead_or_too_old_is_rejected(state: ActionIngestState) -> None:
    with pytest.raises(BadAction, match="ahead of our clock"):
        events(state, Suppressed("cpuset"), at_ns=START_NS + 31 * SECOND)
    with pytest.raises(BadAction, match="back"):
        events(state, Suppressed("cpuset"), at_ns=START_NS - 90_000 * SECOND)


def test_a_pod_that_has_ended_is_on_no_node() -> None:
    logs = Logs()
    for phase in ("Running", "Succeeded"):
        logs.append("cluster", observed(pod("p", "a", phase=phase)))
    with pytest.raises(BadAction):
        events(fold(ActionIngestState, logs.contexts["cluster"]), EvictionRequested("uid-p", "because"))


def test_a_static_pod_whose_uid_appears_on_another_node_is_in_the_view_of_that_node_alone() -> None:
    logs = Logs()
    for node in ("a", "b"):
        logs.append("cluster", observed(pod(f"static-{node}", node, mirror="hash")))
    views = fold(ActionIngestState, logs.contexts["cluster"]).node_views
    assert {node: list(view.pods) for node, view in views.items()} == {"b": ["hash"]}


@given(st.lists(st.integers(1, 600), max_size=700))
def test_each_action_is_recorded_once_in_any_order(numbers: list[int]) -> None:
    seen = None
    taken: list[int] = []
    for number in numbers:
        if not is_recorded(seen, "boot", number):
            taken.append(number)
            seen = with_number(seen, "boot", number)
    assert len(set(taken)) == len(taken)
    if len(set(numbers)) <= NUMBERS_KEPT:
        assert set(taken) == set(numbers)
    assert not is_recorded(seen, "another boot", 1)


names = st.sampled_from("abc")
of_cluster = st.one_of(
    st.builds(lambda name, node, phase: observed(pod(name, node, phase=phase)),
              names, st.sampled_from(["", "a", "b"]), st.sampled_from(["Pending", "Running", "Failed"])),
    st.builds(lambda name: observed(pod(name, "a", mirror=f"hash-{name}")), names),
    st.builds(lambda name: PodDeleted(pod=f"d/{name}", pod_uid=f"uid-{name}"), names),
)  # fmt: skip
of_nodes = st.builds(
    lambda node, boot, number: BestEffortSuppressed(node=node, boot=boot, number=number, at_ns=0, policy="cpuset"),
    names, st.sampled_from("xy"), st.integers(1, 5),
) | interference_events(names)  # fmt: skip


@given(st.lists(of_cluster, max_size=20), st.lists(of_nodes, max_size=20), st.integers(), st.integers(0, 40))
def test_any_interleaving_leads_to_the_same_bytes_even_with_a_snapshot_in_between(
    cluster: list[Event], nodes: list[Event], seed: int, cut: int
) -> None:
    logs = Logs()
    for event in cluster:
        logs.append("cluster", event)
    for event in nodes:
        logs.append("nodes-0", event)
    orders = [logs.interleaved(Random(seed + number)) for number in range(3)]
    assert len({fold(ActionIngestState, order).encode() for order in orders}) == 1
    restored = ActionIngestState()
    restored.restore(fold(ActionIngestState, orders[0][:cut]).encode())
    for record in orders[0][cut:]:
        restored.apply(record)
    assert restored.encode() == fold(ActionIngestState, orders[0]).encode()


def test_an_agents_view_moves_only_with_fields_that_it_reads(state: ActionIngestState) -> None:
    found = state.node_pods("a")
    assert [(pod.metadata.uid, pod.metadata.name) for pod in found.pods] == [("hash", "static"), ("uid-p", "p")]
    logs = Logs()
    again = pod("p", "a")
    position = state.node_views["a"].seq
    logs.append("cluster", observed(again))
    state.apply(logs.contexts["cluster"][-1])
    assert state.node_views["a"].seq == position
    logs.append("cluster", PodDeleted(pod="d/p", pod_uid="uid-p"))
    state.apply(logs.contexts["cluster"][-1])
    assert [pod.metadata.uid for pod in state.node_pods("a").pods] == ["hash"]


def test_a_request_for_pods_leaves_no_event(state: ActionIngestState) -> None:
    assert events(state, PodsRequested()) == []


def test_a_pod_with_block_io_limits_is_published_with_the_volumes_of_its_claims() -> None:
    held = pod("p", "a")
    held = structs.replace(
        held,
        metadata=structs.replace(held.metadata, annotations={BLOCK_IO: "{}"}),
        spec=structs.replace(
            held.spec,
            volumes=(
                Volume(name="v", persistent_volume_claim=ClaimSource(claim_name="c")),
                Volume(name="w", ephemeral=EphemeralSource()),
            ),
        ),
    )

    def claim(name: str, volume: str) -> ObjectObserved:
        return ObjectObserved(resource=CLAIMS, name=f"d/{name}", uid=name, object={"spec": {"volumeName": volume}})

    logs = Logs()
    logs.append("cluster", observed(held))
    logs.append("cluster", claim("c", ""))
    logs.append("cluster", claim("c", "pv-1"))
    logs.append("cluster", claim("elsewhere", "pv-9"))
    state = fold(ActionIngestState, logs.contexts["cluster"])
    view = state.node_pods("a")
    assert (view.seq, view.claims) == (3, {"d/c": "pv-1"})
    logs.append("cluster", claim("p-w", "pv-2"))
    assert fold(ActionIngestState, logs.contexts["cluster"]).node_pods("a").claims == {"d/c": "pv-1", "d/p-w": "pv-2"}
    logs.append("cluster", ObjectDeleted(resource=CLAIMS, name="d/c", uid="c"))
    state = fold(ActionIngestState, logs.contexts["cluster"])
    assert state.node_pods("a").claims == {"d/p-w": "pv-2"}
    again = ActionIngestState()
    again.restore(state.encode())
    assert again.encode() == state.encode()


TOPOLOGY = TopologyReported({CPU_BASIC_INFO: "{}"}, "None", (ZoneReported("node-0", {"cpu": ("2", "1500m")}),))


def test_a_changed_topology_is_recorded_and_removed_with_its_node(state: ActionIngestState) -> None:
    assert events(state, TOPOLOGY) == [], "the node is not known: agents tell again"
    logs = Logs()
    logs.append("cluster", NodeObserved(node="a", object=Node(metadata=Metadata(name="a"))))
    state.apply(logs.contexts["cluster"][-1])
    (event,) = events(state, TOPOLOGY)
    assert isinstance(event, NodeTopologyReported)
    assert (event.annotations, event.policy) == (TOPOLOGY.annotations, "None")
    assert event.zones == {"node-0": {"cpu": ("2", "1500m")}}
    logs.append("nodes-0", event)
    state.apply(logs.contexts["nodes-0"][-1])
    assert events(state, TOPOLOGY, number=2) == []
    assert len(events(state, structs.replace(TOPOLOGY, policy="RestrictedPodLevel"), number=2)) == 1
    assert removed_topologies(state) == []
    again = ActionIngestState()
    again.restore(state.encode())
    assert again.encode() == state.encode()
    logs.append("cluster", NodeDeleted(node="a", node_uid="u"))
    state.apply(logs.contexts["cluster"][-1])
    (gone,) = removed_topologies(state)
    assert gone.event == NodeTopologyRemoved("a")
    logs.append("nodes-0", gone)
    state.apply(logs.contexts["nodes-0"][-1])
    assert removed_topologies(state) == []


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"annotations": {"example.com/mine": "x"}}, "example.com/mine is no annotation that an agent reports"),
        ({"zones": (ZoneReported("node-0", {"cpu": ("2", "much")}),)}, r"zones\[node-0\].cpu"),
    ],
)
def test_a_topology_with_foreign_annotations_is_rejected(
    state: ActionIngestState, changes: dict[str, object], why: str
) -> None:
    with pytest.raises(BadAction, match=why):
        events(state, structs.replace(TOPOLOGY, **changes))


def test_a_topology_survives_encoding() -> None:
    assert actions.decode(actions.encode(action_report(TOPOLOGY)), "a") == action_report(TOPOLOGY)


def hooked(**fields: object) -> ContainerHooks:
    given = {"pod_uid": "uid-p", "pod": "d/claimed", "state": "applied"} | fields
    return ContainerHooks(container_id="c1", container="main", at_ns=START_NS, hooks=("BatchResource",), **given)  # type: ignore[arg-type]


def test_records_of_hooks_name_the_pod_as_the_cluster_has_it(state: ActionIngestState) -> None:
    gone = hooked(pod_uid="uid-gone", state="repaired", route="nri", after_ms=900)
    (found,) = events(state, HooksReported((hooked(), gone)))
    assert isinstance(found, ContainerHooksReported)
    assert [(one.pod, one.state, one.route, one.after_ms) for one in found.containers] == [
        ("d/p", "applied", "", None),
        ("d/claimed", "repaired", "nri", 900),
    ]


@pytest.mark.parametrize(
    ("fields", "why"),
    [({"pod_uid": "uid-elsewhere"}, "runs on b"), ({"after_ms": 5}, r"containers\[c1\].after_ms: is 5 for the state applied")],
)  # fmt: skip
def test_records_of_hooks_of_another_nodes_pod_or_that_contradict_themselves_are_rejected(
    state: ActionIngestState, fields: dict[str, object], why: str
) -> None:
    with pytest.raises(BadAction, match=why):
        events(state, HooksReported((hooked(**fields),)))
    with pytest.raises(BadAction, match="containers"):
        actions.decode(actions.encode(action_report(HooksReported(()))), "a")


def test_a_faulty_record_of_hooks_is_left_out_and_named_and_the_others_are_recorded(state: ActionIngestState) -> None:
    foreign = structs.replace(hooked(pod_uid="uid-elsewhere"), container_id="c2")
    reported = HooksReported((foreign, hooked()))
    (found,) = events(state, reported)
    assert isinstance(found, ContainerHooksReported)
    assert [one.container_id for one in found.containers] == ["c1"]
    _, (faulty,) = checked_records(state, action_report(reported), reported.containers)
    assert str(faulty) == "action of node a: action.containers[c2].pod_uid: d/elsewhere runs on b"
