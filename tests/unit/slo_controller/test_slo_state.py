"""The State is a function of its positions, however the contexts' events were interleaved."""

from hypothesis import given
from hypothesis import strategies as st

from services.slo_controller.state import SloState
from shared.events import Recorded
from shared.events.cluster import NodeDeleted, NodeMetricDeleted, NodeMetricObserved
from shared.events.metrics import NodeForgotten
from shared.kube.instants import SECOND, instant_text
from shared.kube.meta import Metadata
from shared.kube.node import NodeMetric, NodeMetricStatus, NodeUsage, ResourceMap
from tests.unit.slo_controller.cluster import BEGAN, Cluster

G = 10**9


def history() -> list[Recorded]:
    """Pods that come and go between reports, late reports, a NodeMetric object beside them, decisions, a node that goes."""
    cluster = Cluster()
    cluster.configure()
    cluster.node()
    cluster.node("m")
    cluster.pod("a", at_s=1)
    cluster.report(30, {"a": (2_000, G)})
    cluster.decide(31)
    cluster.pod("b", at_s=40)
    cluster.report(20, {"a": (9_000, G)})
    cluster.report(90, {"a": (2_000, G), "b": (1_000, G)})
    cluster.no_pod("a", at_s=95)
    cluster.decide(96)
    usage = ResourceMap(resources={"cpu": "5", "memory": "1Gi"})
    status = NodeMetricStatus(update_time=instant_text(BEGAN + 100 * SECOND), node_metric=NodeUsage(node_usage=usage))
    cluster.say("cluster", NodeMetricObserved(node="n", object=NodeMetric(metadata=Metadata(name="n"), status=status)))
    cluster.decide(101)
    cluster.say("cluster", NodeMetricDeleted(node="n"))
    cluster.report(150, {"b": (1_500, G)}, node="m")
    cluster.say("metrics-0", NodeForgotten(node="n", at_ns=BEGAN + 90 * SECOND))
    cluster.decide(151)
    cluster.say("cluster", NodeDeleted(node="n", node_uid="uid-n"))
    cluster.pod("b", at_s=40, phase="Succeeded")
    cluster.decide(160)
    return cluster.records


HISTORY = history()


@given(st.randoms(use_true_random=False), st.integers(0, len(HISTORY)))
def test_any_interleaving_of_the_same_prefixes_gives_the_same_state(random: object, length: int) -> None:
    prefix = HISTORY[:length]
    queues = [[r for r in prefix if r.context == context] for context in ("cluster", "metrics-0", "slo")]
    one, other = SloState(), SloState()
    for record in prefix:
        one.apply(record)
    while any(queues):
        other.apply(random.choice([queue for queue in queues if queue]).pop(0))  # type: ignore[attr-defined]
    assert other.encode() == one.encode()
    names = sorted(one.nodes)
    assert [other.books(name) for name in names] == [one.books(name) for name in names]


def test_the_history_decides_something() -> None:
    assert {record.event.type_name() for record in HISTORY if record.context == "slo"} >= {
        "koord.slo.NodeOvercommitted.v1",
        "koord.intents.FieldsDecided.v1",
    }
