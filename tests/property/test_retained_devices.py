"""The State of device discovery is a function of its positions: in any interleaving of the contexts, from the oldest kept
event while retention drops what it and the gateway wrote, and from a snapshot.
"""

from collections.abc import Callable, Sequence
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from services.device_discovery.decide_device_object import decide_node
from services.device_discovery.service import SERVICE as DISCOVERY
from services.device_discovery.state import DiscoveryState
from services.gateway.service import SERVICE as GATEWAY
from shared.agents.device_inventory import BadInventory
from shared.events import Cause
from tests.support.discovery_log import DiscoveryLog, gpu, sick
from tests.support.hypothesis_examples import examples
from tests.support.kept_log import GrowingLog

NODES = ("n", "m")
STEPS = 150
HOUR_S = 3_600


class Histories:
    """Nodes that come, go and come back, cards that fail, vanish and are replaced, and pods that have them."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.log = DiscoveryLog()
        self.running: list[str] = []
        self.ended: list[str] = []
        self.numbers = 0

    def step(self) -> None:
        """Something happens."""
        self.log.at_s += self.random.randrange(1, HOUR_S)
        self.random.choice(self.steps())()

    def steps(self) -> Sequence[Callable[[], None]]:
        """Returns what may happen."""
        return (
            self.node,
            self.report,
            self.report,
            self.report,
            self.pod,
            self.pod,
            self.device,
            self.replaced,
            self.decide,
            self.decide,
        )

    def node(self) -> None:
        """A node comes, comes again with another uid, or leaves."""
        name = self.random.choice(NODES)
        if self.random.random() < 0.3:
            self.log.no_node(name)
        else:
            self.log.node(name, uid=f"uid-{name}-{self.random.randrange(2)}")

    def report(self) -> None:
        """An agent reports, also one that has just started or whose inventory is older than the newest."""
        name = self.random.choice(NODES)
        if name not in self.log.state.nodes:
            return
        found = [
            self.random.choice((gpu(minor), gpu(minor), sick(minor), gpu(minor, id=f"GPU-{minor}-new")))
            for minor in range(3)
            if self.random.random() < 0.8
        ]
        unread = {"gpu": "the library does not respond"} if self.random.random() < 0.1 else {}
        labels = {"node.koordinator.sh/gpu-model": "H100"} if self.random.random() < 0.7 else {}
        try:
            self.log.report(
                *([] if unread else found),
                node=name,
                boot=str(self.random.randrange(2)),
                at_s=self.log.at_s - self.random.choice((0, 0, 0, 30, HOUR_S)),
                unread=unread,
                labels=labels,
            )
        except BadInventory:
            return

    def pod(self) -> None:
        """A pod gets cards, ends, or is recorded as bound after its end."""
        if self.running and self.random.random() < 0.5:
            name = self.running.pop(self.random.randrange(len(self.running)))
            self.ended.append(name)
            self.log.no_pod(name)
        elif self.ended and self.random.random() < 0.3:
            self.log.bound(self.ended.pop(), self._allocation(), self.random.choice(NODES))
        else:
            self.numbers += 1
            self.running.append(f"p{self.numbers}")
            self.log.pod(self.running[-1], self._allocation(), self.random.choice(NODES))

    def _allocation(self) -> str:
        return f'{{"gpu":[{{"minor":{self.random.randrange(3)}}}]}}'

    def device(self) -> None:
        """Somebody deletes a Device."""
        self.log.no_device_object(self.random.choice(NODES))

    def replaced(self) -> None:
        """A later event desired the Device of a node: one of this shard, or of another one that has the node now."""
        name = self.random.choice(NODES)
        if (cause := self.log.state.desired_by.get(name)) is not None:
            self.log.superseded(Cause(cause.context, cause.seq - self.random.choice((0, 0, 1))), name)

    def decide(self) -> None:
        """The Device of a node is decided."""
        self.log.decide(self.random.choice(NODES), self.log.at_s, is_own=self.random.random() < 0.9)


def grown(random: Random, *, drops: bool) -> GrowingLog:
    """Returns a log that grew, while its oldest events were dropped if wanted."""
    history, log = Histories(random), GrowingLog((GATEWAY, DISCOVERY))
    added = 0
    for _ in range(STEPS):
        history.step()
        added = log.extend(history.log.records, added)
        if drops and log.rows and random.random() < 0.1:
            context = random.choice(sorted(log.rules.keys() & log.rows.keys()))
            if len(log.rows[context]) > 1:
                log.drop(context, log.base.get(context, 0) + random.randrange(1, len(log.rows[context])))
    return log


@given(seed=st.integers(0, 2**32))
@settings(max_examples=examples(60))
def test_a_fold_from_the_oldest_kept_event_is_the_live_state(seed: int) -> None:
    random = Random(seed)
    log = grown(random, drops=True)
    live, anew = _live(log), log.folded_anew(DISCOVERY.name, DISCOVERY.new_state, random)
    assert _known(anew) == _known(live)


@given(seed=st.integers(0, 2**32))
@settings(max_examples=examples(40))
def test_every_interleaving_ends_in_one_state_and_a_snapshot_in_the_same_decisions(seed: int) -> None:
    random = Random(seed)
    log = grown(random, drops=False)
    live, anew = _live(log), log.folded_anew(DISCOVERY.name, DISCOVERY.new_state, random)
    assert anew.encode() == live.encode()
    restored = DiscoveryState()
    restored.restore(live.encode())
    assert restored.encode() == live.encode()
    for node in NODES:
        assert decide_node(restored, node, 1) == decide_node(live, node, 1) == decide_node(anew, node, 1)
        for key in live.there(node):
            assert restored.users(node, key) == live.users(node, key)


def _live(log: GrowingLog) -> DiscoveryState:
    state = log.followers[DISCOVERY.name].state
    assert isinstance(state, DiscoveryState)
    return state


def _known(state: DiscoveryState) -> tuple[object, ...]:
    """Returns what the State holds, but for bindings that were recorded after the end of their pod."""
    pods = {uid: pod._replace(bound_seq=0) for uid, pod in state.pods.items() if pod.is_there}
    moved = [node for node in NODES if state.has_moved(node)]
    return state.positions, state.nodes, state.devices, state.reported, pods, state.desired_fields, moved
