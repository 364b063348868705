"""What a cycle works on: the room on the nodes, and every plugin's working copy, moved on by each pod that is placed."""

from collections.abc import Mapping, Sequence

from services.scheduler.cache.scheduling_cache import Index
from services.scheduler.cycle.cycle_snapshot import Room
from services.scheduler.framework.plugin import Plugin, Profile
from services.scheduler.framework.plugin_state import Placeable, PluginState, Preemptable, Releasable, Surprising
from services.scheduler.framework.protocols import is_kind
from services.scheduler.framework.reserve import Givers
from services.scheduler.state.pod_class import PodAsk
from services.scheduler.state.pod_record import Held, PodFacts


class WorkingCopies:
    """The nodes as a settled index has them, for one cycle or for one question of what would be.

    Attributes:
        room: what is taken.
        plugin_states: each plugin's working copy.
        givers: those that give pods something.
    """

    def __init__(self, index: Index, now_ns: int) -> None:
        self.room = Room(index.table, index.book, index.surroundings)
        self.plugin_states: dict[Plugin, PluginState] = {
            plugin: plugin.new_state(self.room, ledger, now_ns) for plugin, ledger in index.ledgers.items()
        }
        self.givers = Givers(self.plugin_states)
        plugin_states = self.plugin_states.values()
        self._counting = [state for state in plugin_states if is_kind(state, Placeable)]
        self._surprising = [state for state in plugin_states if is_kind(state, Surprising)]

    def count(self, pod: PodFacts, ask: PodAsk, row: int, given: Mapping[str, str]) -> None:
        """A pod goes to the node, and gets what it is given there."""
        self.room.place(ask, row)
        for state in self._counting:
            state.place(pod, ask, row)
        self.givers.assume(pod, ask, row, given)

    def nominate(
        self, pod: PodFacts, ask: PodAsk, profile: Profile, row: int, leaving: Sequence[Held]
    ) -> dict[str, str]:
        """Counts a pod on the node that it is nominated for, with what it is promised there once these pods have left; returns that."""
        given = self.givers.reserve_after(profile, ask, row, leaving)
        self.count(pod, ask, row, given)
        return given

    def count_all(self, pods: Sequence[PodFacts], ask: PodAsk, rows: Sequence[int]) -> int:
        """Equal pods go to these nodes, each to another, and get nothing but room there; how many: those that change it as is foreseen."""
        count = min((state.count_predicted(pods, ask, rows) for state in self._surprising), default=len(rows))
        pods, rows = pods[:count], rows[:count]
        self.room.place_all(ask, rows)
        for state in self._counting:
            if is_kind(state, Surprising):
                state.place_all(pods, ask, rows)
            else:
                for pod, row in zip(pods, rows, strict=True):
                    state.place(pod, ask, row)
        return count

    def matched_prediction(self) -> bool:
        """Whether the pod that was counted last changed its node as was foreseen, gifts aside."""
        return all(state.matched_prediction() for state in self._surprising)

    def move(self, held: Held, row: int, sign: int) -> None:
        """A pod that ran when the cycle began is taken off its node (-1), or put back (+1)."""
        self.room.move(held.ask, row, sign)
        for state in self.plugin_states.values():
            if is_kind(state, Preemptable):
                state.move(held.ask, row, ending=held.ending, sign=sign)
            if is_kind(state, Releasable):
                state.release(held, row, sign)
