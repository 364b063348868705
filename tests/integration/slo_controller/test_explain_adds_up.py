"""`koord explain node` against independent sums: from the raw events of a real log, for every minute of a history."""

from collections.abc import Sequence
from datetime import UTC, datetime
from random import Random

from cli.node.command import NodeExplained, explained
from services.slo_controller.overcommit.explain import Step
from shared.events import Draft, RecordedEvent
from shared.kube.instants import SECOND
from shared.log.database import Database
from shared.log.reader import LogReader
from shared.log.writer import LogWriter
from tests.support.slo_cluster import BEGAN, ON, Cluster

G = 10**9
CAPACITY_CPU, CAPACITY_MEMORY = 100_000, 120 * G
THIRD_PARTY_ALLOCATIONS = (
    '{"allocations":[{"name":"yarn","priority":"koord-batch","resources":{"kubernetes.io/batch-cpu":"900"}}]}'
)
MINUTES = 20


class Inputs:
    """The inputs of the node's calculation, in numbers of the test.

    Attributes:
        pods: name -> (requested cpu, requested memory) of the pods on the node at the report's time.
        used: name -> (used cpu, used memory) in the report.
    """

    def __init__(self) -> None:
        self.percent = 65
        self.pods: dict[str, tuple[int, int]] = {}
        self.used: dict[str, tuple[int, int]] = {}
        self.system = (0, 0)
        self.policy = "usage"

    def batch(self, index: int) -> int:
        """Computes batch cpu (0) or memory (1), independently by the formulas of the documentation."""
        capacity = (CAPACITY_CPU, CAPACITY_MEMORY)[index]
        protected = capacity * (100 - self.percent) // 100
        requested = sum(pod[index] for pod in self.pods.values())
        used = sum(self.used.get(name, pod)[index] for name, pod in self.pods.items())
        used += sum(size[index] for name, size in self.used.items() if name not in self.pods)
        if index == 1 and self.policy == "request":
            left = capacity - protected - requested
        else:
            left = capacity - protected - self.system[index] - used
        return max(max(left, 0) - (900 if index == 0 else 0), 0)


def walked(steps: Sequence[Step]) -> int:
    """Computes the amount from the printed steps, each applied by its sign."""
    amount = 0
    for step in steps:
        match step.sign:
            case "" | "+":
                amount += step.amount
            case "-":
                amount -= step.amount
            case "<":
                amount = min(amount, step.amount)
            case ">":
                amount = max(amount, step.amount)
            case "=":
                assert step.amount == max(amount, 0), step
                amount = step.amount
    return amount


async def append(database: Database, records: Sequence[RecordedEvent]) -> None:
    """Appends the history to a real log, with its original times."""
    for context in ("cluster", "metrics-0", "slo"):
        writer = LogWriter(database, None, context, "test")
        await writer.acquire()
        for record in records:
            if record.context == context:
                await writer.append([Draft(record.event)], now_ns=record.at_ns, seen={})
        await writer.close()


async def test_every_minute_of_a_history_is_explained_by_its_inputs(database: str) -> None:
    random, cluster, inputs = Random(5), Cluster(), Inputs()
    expected: list[tuple[int, tuple[int, int]]] = []
    # Every difference is written, so that each minute has a decision of its own.
    document = ON | {"resourceDiffThreshold": 0.000001, "memoryCalculatePolicy": "usage"}
    cluster.configure(document)
    cluster.node(annotations={"node.koordinator.sh/thirdPartyAllocations": THIRD_PARTY_ALLOCATIONS})
    for minute in range(MINUTES):
        at_s = 60 * minute
        if minute % 3 == 0:
            cpu, memory = random.randrange(1, 9), random.randrange(1, 9)
            cluster.pod(f"web-{minute}", cpu=str(cpu), memory=f"{memory}G", at_s=at_s)
            inputs.pods[f"web-{minute}"] = cpu * 1000, memory * G
        if minute % 5 == 4:
            gone = random.choice(sorted(inputs.pods))
            cluster.no_pod(gone, at_s)
            del inputs.pods[gone]
        if minute in (7, 13):
            inputs.percent, inputs.policy = random.choice((50, 80)), random.choice(("usage", "request"))
            document |= {"cpuReclaimThresholdPercent": inputs.percent, "memoryReclaimThresholdPercent": inputs.percent}
            document |= {"memoryCalculatePolicy": inputs.policy}
            cluster.configure(document)
        inputs.system = random.randrange(1, 5000), random.randrange(1, 5 * G)
        inputs.used = {
            name: (random.randrange(requested_cpu), random.randrange(requested_memory))
            for name, (requested_cpu, requested_memory) in inputs.pods.items()
            if random.random() < 0.8  # the others are not measured yet
        }
        cluster.report(at_s + 30, inputs.used, system=inputs.system)
        cluster.decide(at_s + 31)
        expected.append((at_s + 31, (inputs.batch(0), inputs.batch(1))))
    opened = Database(database)
    try:
        await append(opened, cluster.records)
        log = LogReader(opened)
        found: list[NodeExplained] = []
        for at_s, amounts in expected:
            then = await explained(log, "n", datetime.fromtimestamp(BEGAN / SECOND + at_s + 20, UTC))
            of_cpu, of_memory = then.resources[:2]
            assert (walked(of_cpu.steps), walked(of_memory.steps)) == amounts, f"{at_s} s"
            assert of_cpu.adds_up
            assert of_memory.adds_up
            found.append(then)
        assert await explained(log, "n") == found[-1], "now is the last minute"
        assert len({each.event for each in found}) == MINUTES
    finally:
        await opened.close()
