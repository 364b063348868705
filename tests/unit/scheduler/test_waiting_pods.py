"""The waiting pods, from the State alone: as the queue that decides has them."""

from random import Random

from hypothesis import example, given, settings
from hypothesis import strategies as st

from services.scheduler.explain.waiting_order_config import QueueRules, rules_in_force
from services.scheduler.explain.waiting_pods import WaitingPod, waiting_pods
from services.scheduler.explain.why_pod_waits_now import pending_status_of
from services.scheduler.framework.reasons import Reason
from services.scheduler.queue.units import turn
from services.scheduler.state.scheduler_state import SchedulerState
from shared.domain import gang
from shared.domain.priority import SUB_PRIORITY
from shared.events.scheduling import PodPlaced
from shared.kube.elastic_quota import QUOTA_NAME
from tests.support.hypothesis_examples import examples
from tests.support.scheduling_world import World, node, pod, use
from tests.unit.scheduler.scheduler_with_ledger import Teams, quota

TEXTS = """apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: mine
- schedulerName: with-gangs
  pluginConfig: [{name: Coscheduling, args: {defaultMatchPolicy: only-waiting}}]
  plugins: {permit: {enabled: [{name: Coscheduling}]}}
"""


def found(world: World) -> dict[str, WaitingPod]:
    """Returns the waiting pods of a State that was restored, as commands have it, by name."""
    view = SchedulerState()
    view.restore(world.view.encode())
    return {each.record.uid: each for each in waiting_pods(view, rules_in_force(view), world.now_ns)}


def random_world(random: Random) -> Teams:
    """Quotas, gangs, priorities and gates, after some cycles and outcomes."""
    world = Teams(quota("small", "1", "2"), quota("large", "8", "64"), cpu=random.choice(("3", "64")), nodes=2)
    for number in range(random.randrange(4, 30)):
        labels = random.choice(({}, {QUOTA_NAME: "small"}, {QUOTA_NAME: "large"}, {SUB_PRIORITY: "5100"}))
        annotations = {}
        if random.random() < 0.4:
            minimum = str(random.choice((2, 3, 40)))
            annotations = {gang.NAME: f"g{random.randrange(3)}", gang.MINIMUM: minimum}
        world.add_pod(
            pod(
                f"p{number:02}", cpu=random.choice(("1", "2", "100")), labels=labels, annotations=annotations,
                priority=random.choice((None, 5, 9000)), gates=random.choice(((), (), (), ("later",))),
                scheduler=random.choice(("koord-scheduler", "koord-scheduler", "koord-scheduler", "theirs")),
            )
        )  # fmt: skip
        if random.random() < 0.3:
            world.read()
            for record in world.cycle():
                if isinstance(record.event, PodPlaced) and random.random() < 0.7:
                    world.answer(record, random.choice(("bound", "rejected", "failed", "suppressed")))
            world.wait(random.choice((0, 0.5, 1, 3, 12, 301)))
            if random.random() < 0.2:
                world.add_node(node(f"more{number}", cpu="2"))
    world.read()
    return world


@given(st.integers(0, 2**32))
@example(110)  # a charge takes the capacity for which another pod was admitted
@settings(max_examples=examples(400), deadline=None)
def test_states_and_order_are_those_of_the_queue(seed: int) -> None:
    world = random_world(Random(seed))
    cache, there = world.indexed(), found(world)
    cache.settle()
    expected = {
        uid: reason
        for uid, record in sorted(world.view.pods.items())
        if record.since and (reason := pending_status_of(cache, record, world.now_ns)) is not None
    }
    if not world.view.positions.get("scheduling"):  # this scheduler runs and has written nothing yet
        expected = {uid: Reason("NoScheduler") if each.code == "InQueue" else each for uid, each in expected.items()}
    assert {uid: each.state.code for uid, each in there.items()} == {uid: each.code for uid, each in expected.items()}
    assert {
        uid: each.state for uid, each in there.items() if each.state.code not in ("BackingOff", "AwaitsChange")
    } == {uid: each for uid, each in expected.items() if each.code not in ("BackingOff", "AwaitsChange")}
    cache.queue.advance(world.now_ns)
    line = sorted(cache.queue.choose(1000, cache.queue.bins()), key=turn)
    tried = [{each.uid for each in unit.pods} for unit in line]
    ours: dict[int, set[str]] = {}
    for uid, each in there.items():
        if each.place and each.state.code != "BackingOff":
            ours.setdefault(each.place, set()).add(uid)
    order = [ours[place] for place in sorted(ours)]
    assert [pods for pods in order if pods in tried] == [pods for pods in tried if pods in order]
    # A unit whose other pods are in backoff, or wait for another scheduler, is not tried.
    assert all(pods in tried for pods in order if not any(there[uid].gang for uid in pods))


def test_a_pod_in_backoff_keeps_its_place_and_has_the_time_of_its_next_attempt() -> None:
    world = World()
    world.add_node(node("n", cpu="1"))
    world.add_pod(pod("large", cpu="8", priority=9000))
    world.read()
    world.cycle()
    world.add_pod(pod("new", cpu="8"))
    world.read()
    there = found(world)
    assert [(uid, each.place, each.state.code) for uid, each in there.items()] == [
        ("large", 1, "BackingOff"),
        ("new", 2, "InQueue"),
    ]
    assert there["large"].next_ns == world.now_ns + 1_000_000_000
    world.wait(2)
    assert found(world)["large"].state.code == "AwaitsChange"
    assert found(world)["large"].next_ns == there["large"].record.tried_ns + 300 * 1_000_000_000
    world.wait(300)
    assert found(world)["large"].state.code == "InQueue"


def test_a_gang_takes_one_place_and_its_pods_name_it() -> None:
    world = World()
    world.add_node(node("n", cpu="1"))
    for name in ("a", "b", "c"):
        world.add_pod(pod(name, cpu="8", annotations={gang.NAME: "job", gang.MINIMUM: "3"}))
    world.add_pod(pod("alone"))
    world.read()
    assert {uid: (each.place, each.gang) for uid, each in found(world).items()} == {
        "a": (1, "d/job"), "b": (1, "d/job"), "c": (1, "d/job"), "alone": (2, "")
    }  # fmt: skip


def test_the_rules_are_those_of_the_profiles_in_force() -> None:
    world = World()
    assert list(rules_in_force(world.view).schedulers) == ["koord-scheduler"]
    use(world, TEXTS)
    rules = rules_in_force(world.view)
    assert rules.schedulers["mine"] is None
    gangs = rules.schedulers["with-gangs"]
    assert gangs is not None
    assert gangs.match_policy == "only-waiting"
    world.view.config_settings = {"shadow_scheduler": "mine", "by_sub_priority": "False"}
    assert rules_in_force(world.view) == QueueRules(rules.schedulers, "mine", by_sub_priority=False, reserving=False)
    world.view.config_text = "unreadable: ["
    assert list(rules_in_force(world.view).schedulers) == ["koord-scheduler"]
