"""Pods and Reservations that wait because of a misspelt or missing thing: the command names it, on a real log."""

import asyncio
import json
import re
import time

from shared.domain import gang
from shared.domain.qos import LABEL as QOS
from shared.kube.elastic_quota import QUOTA_NAME
from shared.kube.instants import SECOND
from shared.kube.system_annotations import RESOURCE_STATUS
from tests.integration.cli.recorded_log import Log, run
from tests.integration.cli.recorded_world import begin, write
from tests.support.reservations import observe, reservation
from tests.support.scheduling_world import World, node, pod
from tests.unit.scheduler.scheduler_with_ledger import Teams, quota

_AFFINITY = "scheduling.koordinator.sh/reservation-affinity"


class _Recorded(Teams):
    """A world with a ledger whose logs begin as in a database."""

    def __init__(self) -> None:
        self._has_begun = False
        super().__init__(quota("small", "1", "2"))
        self.now_ns = time.time_ns() - 20 * SECOND

    def add_node(self, added: object) -> None:
        if not self._has_begun:
            self._has_begun = True
            begin(self, "cluster", "scheduling")
        super().add_node(added)  # type: ignore[arg-type]


async def _log(database: str, world: World) -> Log:
    await write(world, database)
    return Log(database)


async def test_before_the_first_start_of_a_scheduler_no_cycle_is_promised(database: str) -> None:
    def world() -> World:
        made = World()
        made.now_ns = time.time_ns() - 20 * SECOND
        begin(made, "cluster")
        made.add_node(node("n1"))
        made.add_pod(pod("waits"))
        del made.logs["scheduling"]
        return made

    log = await _log(database, await asyncio.to_thread(world))
    words = "no scheduler has written to this log yet: start one with `koord up`; the first start compiles for a minute or more"
    listed = (await run(log, "pending", "-A", "-o", "json")).stdout
    assert [(each["place"], each["state"], each["waits_for"]) for each in json.loads(listed)["items"]] == [
        (1, "NoScheduler", words)
    ]
    explained = (await run(log, "why", "pod", "d/waits")).stdout
    assert explained.splitlines()[0].endswith(f"): {words}")


def _misspelt() -> World:
    world = _Recorded()
    world.add_pod(pod("lonely", annotations={gang.NAME: "lw", gang.MINIMUM: "two", gang.MODE: "Loose"}))
    world.add_pod(pod("sister", labels={gang.LIGHTWEIGHT_NAME: "lab", gang.LIGHTWEIGHT_MINIMUM: "3x"}))
    world.add_pod(pod("starts", annotations={gang.NAME: "one", gang.MINIMUM: "1", gang.WAITING_TIME: "soon"}))
    world.add_pod(pod("charged", labels={QUOTA_NAME: "smal"}))
    world.add_pod(pod("counts", labels={QUOTA_NAME: "smal"}, on="n1", phase="Running"))
    world.add_pod(pod("field", annotations={_AFFINITY: '{"nam": "kept"}'}))
    world.add_pod(pod("name", annotations={_AFFINITY: '{"name": "kep"}'}))
    world.add_pod(pod("other", scheduler="koord-schduler"))
    lsr = {QOS: "LSR"}
    world.add_pod(pod("shares", cpu="4", labels=lsr, on="n1", phase="Running"))
    world.add_pod(
        pod("owns", cpu="4", labels=lsr, on="n1", phase="Running", annotations={RESOURCE_STATUS: '{"cpuset":"0-3"}'})
    )
    observe(world, reservation("kept", template={"schedulerName": "default-scheduler"}))
    world.read()
    world.cycle()
    return world


async def test_why_pod_names_what_is_misspelt(database: str) -> None:
    log = await _log(database, await asyncio.to_thread(_misspelt))

    async def why(name: str) -> str:
        return (await run(log, "why", "pod", f"d/{name}")).stdout

    lonely = await why("lonely")
    assert (
        f"  ignored: annotation {gang.MINIMUM} is 'two', which is no number: the pod gives its gang no minimum\n"
        in lonely
    )
    assert f"  ignored: annotation {gang.MODE} is 'Loose', which is none of Strict, NonStrict" in lonely
    assert "its pods give no readable minimum" in lonely
    assert lonely.count("'two'") == 1, lonely
    assert f"  ignored: label {gang.LIGHTWEIGHT_MINIMUM} is '3x', which is no number" in await why("sister")
    assert f"  ignored: annotation {gang.WAITING_TIME}: 'soon' is not a duration" in await why("starts")
    assert "it belongs to quota koordinator-default-quota; its label names smal, which is not in force" in await why(
        "charged"
    )
    missing = (
        f"label {QUOTA_NAME} names quota 'smal', which does not exist: "
        "the pod counts in koordinator-default-quota; perhaps 'small' is meant"
    )
    assert f"  check: {missing}\n" in await why("charged")
    assert f"  check: {missing}\n" in await why("counts")
    doctor = json.loads((await run(log, "doctor", "-o", "json")).stdout)
    assert f"2 pods (d/charged, d/counts): {missing}" in [each["what"] for each in doctor]
    assert (
        f"  check: annotation {_AFFINITY} has a field 'nam', which has no effect; perhaps 'name' is meant\n"
        in await why("field")
    )
    assert (
        f"  check: annotation {_AFFINITY} names Reservation 'kep', which does not exist; perhaps 'kept' is meant\n"
        in await why("name")
    )
    assert "  check: no profile is named 'koord-schduler'; perhaps 'koord-scheduler' is meant\n" in await why("other")
    described = (await run(log, "describe", "pod", "d/lonely")).stdout
    assert "Ignored:" in described, described


async def test_describe_pod_names_the_cpus_that_a_pod_has_for_itself(database: str) -> None:
    log = await _log(database, await asyncio.to_thread(_misspelt))
    assert re.search(r"CPUs: +0-3\n", (await run(log, "describe", "pod", "d/owns")).stdout)
    described = (await run(log, "describe", "pod", "d/shares")).stdout
    assert re.search("CPUs: +none of its own: those of n1 were not reported when it was placed", described)


async def test_a_reservation_of_a_scheduler_that_places_none_names_the_remedy(database: str) -> None:
    log = await _log(database, await asyncio.to_thread(_misspelt))
    shown = (await run(log, "why", "reservation", "kept")).stdout
    assert shown.startswith("Reservation kept (Pending): it waits for scheduler default-scheduler\n"), shown
    assert (
        "  check: no profile is named 'default-scheduler', and other schedulers place no Reservations; "
        "give one of koord-scheduler in spec.template.spec.schedulerName\n" in shown
    )
    described = (await run(log, "describe", "reservation", "kept")).stdout
    assert "Expires:         not before it is placed\n" in described
