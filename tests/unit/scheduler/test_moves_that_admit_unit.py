"""Defragmentation as a plan: few moves, each to a node with capacity now, after which the waiting pods are placed."""

from collections.abc import Callable, Sequence
from random import Random

import pytest
from msgspec.structs import replace

from services.scheduler.explain.movable_pods import why_fixed
from services.scheduler.explain.moves_that_admit_unit import PlannedMove, UnitMoves, at_once, moves_for, moves_in_slices
from services.scheduler.explain.waiting_unit import NoGangToPlan, waiting_unit
from services.scheduler.extender_server.answer_moves_for_waiting_unit import moves_for_unit
from shared.domain.moves_for_waiting_unit import MovesForUnitRequest
from shared.events.cluster import ObjectObserved
from shared.kube.meta import OwnerReference
from shared.kube.pod import Pod
from tests.support.device_machines import gpu_pod
from tests.support.hypothesis_examples import examples
from tests.support.scheduling_world import World, node, placements, pod
from tests.unit.scheduler.test_device_cycles import minors, run, schedule
from tests.unit.scheduler.test_device_cycles import world_of as gpu_world
from tests.unit.scheduler.test_gangs import member, pod_group

DEPLOYMENT = OwnerReference(api_version="apps/v1", kind="ReplicaSet", name="web", uid="web-uid", controller=True)


def owned(given: Pod, owner: OwnerReference = DEPLOYMENT) -> Pod:
    return replace(given, metadata=replace(given.metadata, owner_references=(owner,)))


def running(name: str, on: str, cpu: str = "1") -> Pod:
    return owned(pod(name, cpu=cpu, memory=None, on=on, phase="Running"))


def world_of(*nodes: str, pods: Sequence[Pod]) -> World:
    world = World()
    for name in nodes:
        world.add_node(node(name))
    for each in pods:
        world.add_pod(each)
    world.read()
    return world


def plan(world: World, *names: str) -> UnitMoves:
    cache = world.indexed()
    cache.settle()
    pods = [world.view.pods[name] for name in names]
    return moves_for(cache, pods, lambda each: why_fixed(world.view, each), world.now_ns)


def test_one_pod_moves_for_a_pod_that_fits_on_no_node() -> None:
    pods = [running(f"{host}{number}", host) for host in "abc" for number in range(2)]
    world = world_of("a", "b", "c", pods=[*pods, pod("large", cpu="3", memory=None)])
    found = plan(world, "large")
    assert len(found.moves) == 1
    assert found.nodes == {"large": found.moves[0].source}
    assert found.moves[0].destination != found.moves[0].source


def test_a_pod_that_fits_needs_no_move() -> None:
    world = world_of("a", pods=[running("p", "a"), pod("small", cpu="3", memory=None)])
    assert plan(world, "small") == UnitMoves({"small": "a"}, ())


def test_pods_of_a_unit_are_planned_together() -> None:
    pods = [running(f"{host}{number}", host) for host in "abcd" for number in range(2)]
    waiting = [pod(name, cpu="3", memory=None) for name in ("w0", "w1")]
    found = plan(world_of("a", "b", "c", "d", pods=[*pods, *waiting]), "w0", "w1")
    assert len(found.moves) == 2
    assert len(set(found.nodes.values())) == 2
    assert not {move.destination for move in found.moves} & set(found.nodes.values())


def bare(given: Pod) -> Pod:
    return replace(given, metadata=replace(given.metadata, owner_references=()))


def of_daemon_set(given: Pod) -> Pod:
    return owned(given, OwnerReference(api_version="apps/v1", kind="DaemonSet", name="d", uid="d", controller=True))


def critical(given: Pod) -> Pod:
    return replace(given, spec=replace(given.spec, priority=2_000_000_000))


def with_empty_dir(given: Pod) -> Pod:
    return replace(given, spec=replace(given.spec, local_storage=True))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (bare, "without a controller"),
        (of_daemon_set, "of a DaemonSet or of the node"),
        (critical, "critical"),
        (with_empty_dir, "with local storage"),
    ],
)
def test_pods_that_no_workload_replaces_on_another_node_do_not_move(change: Callable[[Pod], Pod], why: str) -> None:
    pods = [change(running(f"{host}{number}", host)) for host in "abc" for number in range(2)]
    found = plan(world_of("a", "b", "c", pods=[*pods, pod("large", cpu="3", memory=None)]), "large")
    assert not found.moves
    on_nodes = "of the pods on the 3 nodes that are short of something, none may move"
    assert found.problem == f"no move helps: {on_nodes} (6 {why})"


def test_a_disruption_budget_without_disruptions_left_forbids_the_move() -> None:
    labels = {"app": "web"}
    pods = [owned(pod(f"{host}0", cpu="2", memory=None, on=host, phase="Running", labels=labels)) for host in "abc"]
    world = world_of("a", "b", "c", pods=[*pods, pod("large", cpu="3", memory=None)])
    assert len(plan(world, "large").moves) == 1
    spec = {"selector": {"matchLabels": labels}}
    budget = {"metadata": {}, "spec": spec, "status": {"disruptionsAllowed": 0}}
    world.observe(ObjectObserved(resource="poddisruptionbudgets.policy", name="d/b", uid="b", object=budget))
    world.read()
    found = plan(world, "large")
    assert not found.moves
    assert "none of the 3 nodes" in found.problem


def test_a_share_of_a_gpu_moves_for_a_pod_that_needs_a_whole_one() -> None:
    world = gpu_world("a", "b", gpus=2)
    large, small = gpu_shares(world, 4, 60), gpu_shares(world, 3, 40)
    (alone,) = {"a", "b"} - {node for node in "ab" if sum(place[0] == node for place in small.values()) == 2}
    beside = next(uid for uid, place in large.items() if place[0] != alone)
    world.drop_pod(beside)
    schedule(world, gpu_pod("whole", {"koordinator.sh/gpu": "100"}))
    (move,) = plan(world, "whole").moves
    assert {move.source, move.destination} == {"a", "b"}
    assert plan(world, "whole").nodes == {"whole": move.source}


def gpu_shares(world: World, count: int, percent: int) -> dict[str, tuple[str, int]]:
    """Places and runs pods with parts of a GPU; returns node and minor of each."""
    pods = [owned(gpu_pod(f"s{percent}-{number}", {"koordinator.sh/gpu": str(percent)})) for number in range(count)]
    records = schedule(world, *pods)
    run(world, pods, records)
    nodes = placements(records)
    return {uid: (nodes[uid], found[0]) for uid, found in minors(records).items()}


@pytest.mark.parametrize("seed", range(examples(20)))
def test_the_waiting_pod_is_placed_once_the_moves_are_made(seed: int) -> None:
    random = Random(seed)
    hosts = [f"n{number}" for number in range(random.randint(2, 6))]
    pods: list[Pod] = []
    for host in hosts:
        free = 4000
        while free > 500 and random.random() < 0.8:
            size = random.choice([250, 500, 1000, 1500])
            if size <= free:
                free -= size
                pods.append(running(f"p{len(pods)}", host, f"{size}m"))
    world = world_of(*hosts, pods=[*pods, pod("large", cpu=f"{random.choice([2, 3, 4])}", memory=None)])
    found = plan(world, "large")
    if found.problem:
        return
    for move in found.moves:
        make(world, move, pods)
    world.read()
    assert "large" in placements(world.cycles())


def make(world: World, move: PlannedMove, pods: Sequence[Pod]) -> None:
    """Puts a pod on its destination while it counts on its source, as a held place does; then it leaves."""
    (moved,) = [each for each in pods if each.metadata.uid == move.pod_uid]
    resources = moved.spec.containers[0].resources
    assert resources is not None
    assert resources.requests is not None
    world.add_pod(running(f"{move.pod_uid}-moved", move.destination, resources.requests["cpu"]))
    world.read()
    cache = world.indexed()
    cache.settle()
    row = cache.table.rows[move.destination]
    assert cache.table.requested[0, row] <= 4000, "the destination has capacity before the pod leaves"
    world.drop_pod(move.pod_uid)


def test_a_plan_is_none_where_another_pod_of_the_unit_would_take_what_it_frees() -> None:
    """A small pod fits before the moves; after them the emptied node is the best one for it, and the large pod is left."""
    pods = [running("a0", "a", cpu="1"), *(running(f"{host}0", host, cpu="2") for host in "bc")]
    small, large = pod("small", cpu="1", memory=None), pod("large", cpu="4", memory=None)
    world = world_of("a", "b", "c", pods=[*pods, small, large])
    found = plan(world, "small", "large")
    assert found == UnitMoves({}, (), "d/large would be left over after the moves, since the others are placed first")
    in_order = plan(world, "large", "small")
    assert [move.source for move in in_order.moves] == [in_order.nodes["large"]]


def test_a_gang_of_which_one_pod_is_needed_is_planned_by_its_name() -> None:
    pods = [running(f"{host}{number}", host) for host in "abc" for number in range(2)]
    world = world_of("a", "b", "c", pods=pods)
    pod_group(world, "job", 1)
    world.add_pod(member("job", "m0", cpu="3"))
    world.read()
    response = at_once(moves_for_unit(world.indexed(), MovesForUnitRequest("d/job", 4), world.now_ns))
    assert list(response.nodes) == ["m0"]
    assert len(response.moves) == 1


def test_a_gang_that_lacks_pods_is_not_planned() -> None:
    world = world_of("a", pods=[])
    pod_group(world, "job", 2)
    world.add_pod(member("job", "m0", cpu="3"))
    world.read()
    cache = world.indexed()
    cache.settle()
    with pytest.raises(NoGangToPlan, match="incomplete"):
        waiting_unit(cache, "d/job")


def test_pods_of_another_scheduler_stay_and_do_not_end_the_search() -> None:
    def of_another(given: Pod) -> Pod:
        return replace(given, spec=replace(given.spec, scheduler_name="another"))

    pods = [of_another(running(f"{host}{number}", host)) for host in "abc" for number in range(2)]
    world = world_of("a", "b", "c", pods=[*pods, pod("large", cpu="3", memory=None)])
    assert "(6 of another scheduler)" in plan(world, "large").problem


def test_the_node_with_the_fewest_moves_is_found_behind_nodes_that_need_more() -> None:
    """Each of 40 nodes with three pods of a core needs three moves, and one with a small pod needs one."""
    hosts = [f"n{number:02}" for number in range(40)]
    pods = [running(f"{host}-{number}", host) for host in hosts for number in range(3)]
    world = world_of(*hosts, "z", pods=[*pods, running("z0", "z", "500m")])
    world.add_pod(pod("large", cpu="4", memory=None))
    world.read()
    (move,) = plan(world, "large").moves
    assert (move.pod, move.source) == (world.view.pods["z0"].name, "z")


def test_a_search_without_a_plan_ends_in_short_slices() -> None:
    """No node has capacity for another's pod: no class is evaluated, and no pod is tried."""
    hosts = [f"n{number:02}" for number in range(30)]
    pods = [running(f"{host}-{number}", host, "1200m") for host in hosts for number in range(3)]
    world = world_of(*hosts, pods=[*pods, pod("large", cpu="3", memory=None)])
    cache = world.indexed()
    cache.settle()
    search = moves_in_slices(cache, [world.view.pods["large"]], lambda each: why_fixed(world.view, each), world.now_ns)
    for _ in hosts:
        next(search)
    with pytest.raises(StopIteration, match="none of the 30 nodes"):
        while True:
            next(search)
