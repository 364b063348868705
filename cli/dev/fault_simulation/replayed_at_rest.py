"""Every recorded cycle of a world is decided again, bit for bit, from what it had seen."""

from collections.abc import Iterator, Mapping

from cli.dev.fault_simulation.memory_log import Context
from cli.dev.fault_simulation.records_of_log import records
from cli.dev.fault_simulation.substitutions import CODEC
from cli.dev.fault_simulation.world import World
from cli.replay.compare_decisions import first_difference_of
from cli.replay.recorded_appends import EVERY_TYPE, Grouping
from cli.replay.replay_scheduler import SchedulerReplay
from shared.events import RecordedEvent
from shared.fold import State

_REPLAY = SchedulerReplay.service


def decided_differently(world: World) -> Iterator[str]:
    """Yields the recorded cycles that have another result on the State that they had seen.

    Where retention has cut a log, its beginning is not known any more.
    """
    contexts = world.postgres.contexts
    follows = {name: kinds for name, kinds in _REPLAY.member(0, 1).follows.items() if name in contexts}
    if any(contexts[name].first > 1 for name in follows):
        return
    own, replay, grouping = contexts[_REPLAY.writes], SchedulerReplay(), Grouping()
    states = _States(contexts, follows)
    for append in (*grouping.add(records(own, CODEC(EVERY_TYPE), own.head.seq)), *grouping.rest()):
        if not replay.is_repeated(append):
            continue
        found = first_difference_of(*replay.repeat(states.at(append.seen), append))
        if found is not None:
            yield f"{found.event} is decided differently at {found.path}: {found.recorded} is {found.again} again"


class _States:
    """The scheduler's State at recorded positions; a fold from the beginning where these go back."""

    def __init__(self, contexts: Mapping[str, Context], follows: Mapping[str, tuple[type, ...]]) -> None:
        self._records: dict[str, list[RecordedEvent]] = {
            name: list(records(contexts[name], CODEC(kinds), contexts[name].head.seq))
            for name, kinds in follows.items()
        }
        self._begin()

    def _begin(self) -> None:
        self._state: State = _REPLAY.new_state()
        self._folded = dict.fromkeys(self._records, 0)

    def at(self, seen: Mapping[str, int]) -> State:
        """Returns the State at these positions."""
        if any(self._state.positions.get(name, 0) > seen.get(name, 0) for name in self._records):
            self._begin()
        for name, found in self._records.items():
            upto, next_ = seen.get(name, 0), self._folded[name]
            while next_ < len(found) and found[next_].seq <= upto:
                self._state.apply(found[next_])
                next_ += 1
            self._folded[name] = next_
            if upto:
                self._state.positions[name] = upto
        return self._state
