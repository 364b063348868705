"""A generated history of a small cluster with load, taints, releases and refusals, and what the scheduler decided in it.

`python -m tests.unit.scheduler.golden_history` prints its decisions; with `--write` it records the history anew.
"""

import sys
from pathlib import Path
from random import Random

import msgspec
from msgspec.structs import replace

from shared.events import Cause, RecordedEvent
from shared.events.scheduling import PodPlaced
from shared.kube.node import Taint
from shared.kube.pod import Pod, Toleration
from tests.support.scheduling_world import World, metric, node, pod, thresholds, use

FILE = Path(__file__).parents[2] / "golden" / "scheduling.jsonl"


class Line(msgspec.Struct):
    """A recorded event, as a line of the file."""

    context: str
    seq: int
    at_ns: int
    cause: Cause | None
    data: msgspec.Raw


def play(seed: int = 11) -> World:
    """Twelve nodes and 72 pods over six minutes, with reports each minute, two hot nodes, releases and refused bindings."""
    random, world = Random(seed), World()
    use(world, thresholds(65, 95))
    for number in range(12):
        taints = (Taint(key="team", value="a", effect="NoSchedule"),) if number == 11 else ()
        world.add_node(
            node(f"node-{number:02}", cpu="8", memory="16Gi", labels={"zone": f"z{number % 3}"}, taints=taints)
        )
    running: list[str] = []
    observed: dict[str, Pod] = {}
    for minute in range(6):
        for number in range(12):
            used = random.randrange(5000, 8000) if number in (2, 5) else random.randrange(500, 3000)
            world.report(metric(f"node-{number:02}", cpu=f"{used}m", memory="3Gi", at_ns=world.now_ns))
        for number in range(12):
            name = f"pod-{minute}-{number}"
            tolerations = (Toleration(key="team", operator="Exists"),) if number % 4 == 0 else ()
            selector = {"zone": "z1"} if number % 5 == 0 else None
            cpu = random.choice(("250m", "500m", "2", "6"))
            observed[name] = pod(
                name,
                cpu=cpu,
                memory="1Gi",
                priority=random.choice((None, 5500, 9500)),
                selector=selector,
                tolerations=tolerations,
            )
            world.add_pod(observed[name])
        for _ in range(4):
            world.read()
            for record in world.cycle(batch=5):
                if not isinstance(record.event, PodPlaced):
                    continue
                if random.random() < 0.1:
                    world.answer(record, "rejected")
                    continue
                world.answer(record, "bound")
                seen = observed[record.event.pod_uid]
                bound = replace(
                    seen,
                    spec=replace(seen.spec, node_name=record.event.node),
                    status=replace(seen.status, phase="Running"),
                )
                world.add_pod(bound)
                running.append(record.event.pod_uid)
            world.wait(15)
        for _ in range(min(6, len(running))):
            world.drop_pod(running.pop(random.randrange(len(running))))
    return world


def decisions(world: World) -> bytes:
    return b"\n".join(msgspec.json.encode(record.event) for record in world.logs["scheduling"]) + b"\n"


def lines(records: list[RecordedEvent]) -> bytes:
    return b"".join(
        msgspec.json.encode(Line(r.context, r.seq, r.at_ns, r.cause, msgspec.Raw(msgspec.json.encode(r.event)))) + b"\n"
        for r in records
    )


if __name__ == "__main__":
    world = play()
    if "--write" in sys.argv:
        FILE.parent.mkdir(exist_ok=True)
        FILE.write_bytes(lines([*world.logs["cluster"], *world.logs["scheduling"]]))
    else:
        sys.stdout.buffer.write(decisions(world))
