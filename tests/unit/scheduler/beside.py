"""A world in which another scheduler places pods, and this one compares."""

from services.scheduler.configuration import config_of
from services.scheduler.cycle.cycle_inputs import CycleInputs
from services.scheduler.shadow.follow import Shadow
from shared.events.cluster import InitialListCompleted
from shared.events.log import WriterStarted
from shared.events.scheduling import PlacementCompared
from shared.kube.pod import Pod, PodCondition
from tests.support.scheduling_world import World, pod

THEIRS = "default-scheduler"

BOUND = PodCondition(type="PodScheduled", status="True", last_transition_time="2026-05-01T20:06:42Z")


class Beside(World):
    """A world with another scheduler; ours looks at each record before it is folded."""

    def __init__(self) -> None:
        super().__init__()
        self.shadow = Shadow(self.view)
        self.list_all()

    def list_all(self) -> None:
        """The gateway starts and has listed everything."""
        self.observe(WriterStarted(epoch=1, release="x"))
        self.observe(InitialListCompleted(objects=0))

    def indexed(self) -> CycleInputs:
        if self.cache is None:
            self.cache = CycleInputs(self.view, config_of(self.view).profiles, THEIRS)
            self.cache.settle()
            self.shadow.use_cache(self.cache, self.view.config_digest, THEIRS)
        return self.cache

    def read(self, upto: int | None = None) -> None:
        at = self.view.positions.get("cluster", 0)
        for record in self.logs["cluster"][at : upto if upto is not None else None]:
            self.shadow.look(record)
            self.view.apply(record)

    def compared(self) -> list[PlacementCompared]:
        """Append and fold what was compared since the last time."""
        self.indexed()
        self.read()
        records = self.append_drafts(self.shadow.take())
        return [record.event for record in records if isinstance(record.event, PlacementCompared)]

    def bind(self, name: str, to: str, **fields: object) -> None:
        self.add_pod(theirs(name, on=to, conditions=(BOUND,), **fields))


def theirs(name: str, **fields: object) -> Pod:
    return pod(name, scheduler=THEIRS, **fields)  # type: ignore[arg-type]
