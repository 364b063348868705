"""Actions and events about pods that neighbours slow down, for tests of action ingest."""

from hypothesis import strategies as st

from shared.agents.actions import Interfered, SignalDeviation, SuspectedNeighbour
from shared.domain.interference import FIELDS, INTERFERED
from shared.events import Event
from shared.events.intents import FieldsDesired
from shared.events.nodes import DeviatingSignal, InterferenceSuspect, PodInterfered, PodInterferenceEnded
from shared.kube.instants import SECOND
from tests.unit.metrics_ingest.cluster_history import START_NS


def interfered(pod: str, suspect: str, answer: str = "none", done: str = "") -> Interfered:
    """Returns the report of a pod whose scheduling latency deviates, by uid."""
    deviation = SignalDeviation("schedulingLatency", 8000.0, 500.0, 1000.0)
    neighbour = SuspectedNeighbour(suspect, 97, "schedulingLatency", "cpu", 1900.0)
    return Interfered(pod, START_NS - 10 * SECOND, (deviation,), (neighbour,), answer, done)  # type: ignore[arg-type]


def pod_interfered(name: str, node: str, number: int, answer: str = "none") -> PodInterfered:
    """Returns the event about the pod `d/name`."""
    return PodInterfered(
        node=node,
        boot="x",
        number=number,
        at_ns=0,
        pod_uid=f"uid-{name}",
        pod=f"d/{name}",
        since_ns=0,
        deviations=(DeviatingSignal("cpi", 2.0, 1.0, 1.5),),
        suspects=(InterferenceSuspect("uid-q", 97, "cpi", "cpu", 1900.0),),
        answer=answer,
    )


def label(node: str, value: str | None) -> FieldsDesired:
    """Returns the desired label of a node."""
    return FieldsDesired(
        resource="nodes", name=node, fields=FIELDS, patch={"metadata": {"labels": {INTERFERED: value}}}
    )


def interference_events(names: st.SearchStrategy[str]) -> st.SearchStrategy[Event]:
    """Draws events of `nodes-*` about interference."""
    numbers = st.integers(1, 5)
    return st.one_of(
        st.builds(pod_interfered, names, names, numbers, st.sampled_from(["none", "hint"])),
        st.builds(
            lambda name, node, number: PodInterferenceEnded(
                node=node, boot="x" if number else "", number=number, at_ns=0, pod_uid=f"uid-{name}", reason="gone"
            ),
            names,
            names,
            st.integers(0, 5),
        ),
        st.builds(label, names, st.sampled_from([None, "true"])),
    )
