"""A small cluster whose usage drifts, with the descheduler and the scheduler's engine: pods come, go and move.

`Churn` checks after each cycle what must always hold; `figures` compares settings on the same histories.
"""

import sys
from collections import Counter
from random import Random
from statistics import pstdev
from typing import NamedTuple

from services.descheduler.settings import DecisionSettings
from shared.events.descheduling import EvictionCaseOpened, EvictionStepDecided
from shared.kube.instants import SECOND
from tests.unit.descheduler.small_cluster import CONFIG, SmallCluster

NODES = tuple(f"node-{number}" for number in range(6))
CPU_MILLI = 10_000
STEP_S = 10
LIMITS = "maxNoOfPodsToEvictTotal: 3\nmaxNoOfPodsToEvictPerNode: 2\n"
DEFAULT = DecisionSettings()


class Churn:
    """One history, with a descheduler or, without `moves`, with none.

    Attributes:
        violations: what did not hold, in words.
        evictions: pods that moved. imbalance: standard deviation of the nodes' usage in percent, summed over the steps.
    """

    def __init__(
        self, seed: int, settings: DecisionSettings = DEFAULT, *, checks: bool = True, moves: bool = True
    ) -> None:
        self._random = Random(seed)
        self._moves = Random(seed)
        self._checks = checks
        self._has_descheduler = moves
        self._repeat_ns = int(DEFAULT.repeat_after_s * SECOND)
        self.cluster = SmallCluster(CONFIG + LIMITS, settings)
        self.violations: list[str] = []
        self.evictions = 0
        self.imbalance = 0.0
        self._pods: dict[str, tuple[str, int]] = {}  # name -> node, usage
        self._lineage: dict[str, str] = {}  # name -> the first pod of those that replaced each other
        self._left: dict[str, list[tuple[int, str]]] = {}  # lineage -> instant and node
        self._jobs: dict[str, tuple[str, str, int]] = {}  # job -> pod, destination, steps left
        self._names = 0
        self._cases: dict[str, EvictionCaseOpened] = {}
        for name in NODES:
            self.cluster.node(name)
        for _ in range(12):
            self._arrive()

    def run(self, steps: int) -> "Churn":
        """Runs some steps."""
        for _ in range(steps):
            self.step()
        return self

    def step(self) -> None:
        """Usage drifts, pods come and go, moves progress, nodes report, and a cycle runs."""
        self.cluster.wait(STEP_S)
        for name, (node, used) in list(self._pods.items()):
            self._pods[name] = node, min(max(used + self._random.randrange(-300, 301), 100), 4_000)
        if self._random.random() < 0.2:
            self._arrive()
        if len(self._pods) > 8 and self._random.random() < 0.15:
            self._depart(self._random.choice(sorted(self._pods)))
        self._progress()
        for node in NODES:
            self.cluster.report(node, {n: used for n, (on, used) in self._pods.items() if on == node})
        loads = [sum(used for on, used in self._pods.values() if on == node) * 100 / CPU_MILLI for node in NODES]
        self.imbalance += pstdev(loads)
        for advanced in self.cluster.advance():
            self._begin(self._cases[advanced.case], advanced)
        self.cluster.close()
        case = self.cluster.cycle() if self._has_descheduler else None
        if case is not None:
            self._take(case)

    def _arrive(self) -> None:
        node = self._random.choice(NODES)
        if sum(on == node for on, _ in self._pods.values()) < 6:
            self._names += 1
            self._start(f"web-{self._names}", node, self._random.randrange(500, 3_000), f"web-{self._names}")

    def _start(self, name: str, node: str, used: int, lineage: str) -> None:
        self._pods[name] = node, used
        self._lineage[name] = lineage
        self.cluster.pod(name, node, owner=f"owner-{lineage}")

    def _depart(self, name: str) -> None:
        del self._pods[name]
        self.cluster.delete(name)

    def _progress(self) -> None:
        """Jobs end after some steps: most by a replacement at their destination, some fail."""
        for job, (pod, destination, left) in list(self._jobs.items()):
            if left:
                self._jobs[job] = pod, destination, left - 1
                continue
            del self._jobs[job]
            if pod not in self._pods or self._moves.random() < 0.1:
                self.cluster.job(job, "Failed")
                continue
            _, used = self._pods[pod]
            self._depart(pod)
            self._names += 1
            name = f"moved-{self._names}"
            self._start(name, destination, used, self._lineage[pod])
            self.cluster.job(job, "Succeeded", bound=name)
            self.evictions += 1

    def _take(self, case: EvictionCaseOpened) -> None:
        now_ns = self.cluster.now_ns
        hot = {cause.node for cause in case.causes}
        per_node = Counter(victim.node for victim in case.victims)
        if self._checks and (len(case.victims) > 3 or max(per_node.values(), default=0) > 2):
            self.violations.append(f"{case.case} exceeds the limits of a cycle")
        moving = {pod for pod, _, _ in self._jobs.values()}
        for victim in case.victims:
            name = victim.pod.removeprefix("default/")
            lineage = self._lineage[name]
            if self._checks:
                recent = [node for at_ns, node in self._left.get(lineage, ()) if now_ns - at_ns < self._repeat_ns]
                self._check(case, name, victim.destination, hot, recent, is_moving=name in moving)
            self._left.setdefault(lineage, []).append((now_ns, victim.node))
        self._cases[case.case] = case
        for step in self.cluster.state.cases.cases[case.case].steps:
            self._begin(case, step)

    def _begin(self, case: EvictionCaseOpened, step: EvictionStepDecided) -> None:
        """The jobs of a step begin."""
        for victim in case.victims:
            if victim.pod in step.pods:
                to = victim.destination or self._moves.choice(NODES)
                self._jobs[victim.job] = victim.pod.removeprefix("default/"), to, self._moves.randrange(4)

    def _check(
        self, case: EvictionCaseOpened, pod: str, destination: str, hot: set[str], recent: list[str], *, is_moving: bool
    ) -> None:
        if not destination or destination == self._pods[pod][0]:
            self.violations.append(f"{case.case}: {pod} has no destination on another node")
        if destination in hot:
            self.violations.append(f"{case.case}: {pod} goes to {destination}, which is hot itself")
        if destination in recent:
            self.violations.append(f"{case.case}: {pod} returns to {destination}")
        # A failed move may be tried again; a pod that has moved may not.
        if pod.startswith("moved-") and recent:
            self.violations.append(f"{case.case}: {pod} moves again for one cause")
        if is_moving:
            self.violations.append(f"{case.case}: {pod} moves already")
        used = sum(on == destination for on, _ in self._pods.values())
        held = sum(to == destination for _, to, _ in self._jobs.values())
        if used + held >= CPU_MILLI // 1_000 + len(self._jobs):
            self.violations.append(f"{case.case}: {destination} has no room for {pod}")


class Figures(NamedTuple):
    """Figures of many histories.

    Attributes:
        imbalance: mean standard deviation of the nodes' usage, in points of percent.
        evictions: of one history, mean.
    """

    imbalance: float
    evictions: float


def figures(seeds: range, steps: int, settings: DecisionSettings | None) -> Figures:
    """Returns the figures of histories; None for a cluster without a descheduler."""
    churns = [Churn(seed, settings or DEFAULT, checks=False, moves=settings is not None).run(steps) for seed in seeds]
    return Figures(
        sum(each.imbalance for each in churns) / len(churns) / steps,
        sum(each.evictions for each in churns) / len(churns),
    )


def main(seeds: int, steps: int) -> None:
    """Prints the comparison of docs/descheduling.md."""
    plain = DecisionSettings(repeat_after_s=0, source_after_s=0)
    for name, settings in (("none", None), ("plain LowNodeLoad", plain), ("with the rules", DEFAULT)):
        found = figures(range(seeds), steps, settings)
        print(f"{name:<20} imbalance {found.imbalance:6.2f}  evictions {found.evictions:6.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
