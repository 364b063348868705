"""The State of the descheduler is a function of its positions: in any interleaving of the contexts, and from a snapshot."""

from itertools import chain
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from services.descheduler.service import SERVICE
from services.descheduler.state.descheduler_state import DeschedulerState
from shared.events import RecordedEvent
from tests.support.hypothesis_examples import examples
from tests.support.interleavings import interleaved
from tests.unit.descheduler.small_cluster import SmallCluster

NODES = ("a", "b", "c")
STEPS = 40


class RecordingCluster(SmallCluster):
    """A small cluster that keeps its records, by context."""

    def __init__(self) -> None:
        self.records: dict[str, list[RecordedEvent]] = {}
        super().__init__()

    def record(self, record: RecordedEvent) -> None:
        """Keeps a record."""
        self.records.setdefault(record.context, []).append(record)


def history(random: Random) -> RecordingCluster:
    """Nodes, pods that come and go, reports, cycles with cases, jobs that end, and cases that are closed."""
    cluster = RecordingCluster()
    pods: dict[str, str] = {}
    jobs: list[str] = []
    for name in NODES:
        cluster.node(name)
    for step in range(STEPS):
        cluster.wait(random.randrange(1, 200))
        match random.randrange(6):
            case 0:
                name, node = f"p-{step}", random.choice(NODES)
                pods[name] = node
                cluster.pod(name, node, owner="web")
            case 1 if pods:
                name = random.choice(sorted(pods))
                del pods[name]
                cluster.delete(name)
            case 2 | 3:
                node = random.choice(NODES)
                used = {name: random.randrange(500, 5_000) for name, on in pods.items() if on == node}
                cluster.report(node, used, system=random.randrange(5_000))
            case 4:
                case = cluster.cycle(answers=random.random() < 0.8)
                jobs += [victim.job for victim in case.victims] if case else []
            case _ if jobs:
                cluster.job(random.choice(jobs), random.choice(("Running", "Succeeded", "Failed")))
                cluster.advance()
                cluster.close()
    return cluster


@settings(max_examples=examples(15), deadline=None)
@given(st.integers(0, 2**32))
def test_every_interleaving_ends_in_the_same_state(seed: int) -> None:
    random = Random(seed)
    cluster = history(random)
    state = DeschedulerState()
    for record in interleaved(chain.from_iterable(cluster.records.values()), random):
        state.apply(record)
        if random.random() < 0.02:
            restored = DeschedulerState()
            restored.restore(state.encode())
            state = restored
    assert state.encode() == cluster.state.encode()


def test_every_event_of_the_history_is_one_that_the_service_declares() -> None:
    cluster = history(Random(1))
    kinds = {type(record.event) for records in cluster.records.values() for record in records}
    declared = {kind for kinds_of in SERVICE.follows.values() for kind in kinds_of}
    assert kinds <= declared
    own = {type(record.event) for record in cluster.records["descheduling"]}
    assert own <= set(SERVICE.emits)
