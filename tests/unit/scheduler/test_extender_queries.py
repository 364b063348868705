"""The results of the extender's verbs, as functions of the settled cache."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from services.scheduler.extender_server.answer_extender_verbs import cheapest, feasible_candidates
from services.scheduler.extender_server.api_types import MetaPod, MetaVictims
from services.scheduler.extender_server.evaluate_pod_outside_cycle import EvaluationQuery
from shared.kube.meta import OwnerReference
from shared.kube.node import Taint
from shared.kube.pod import Pod
from shared.kube.system_annotations import RESERVATION_ALLOCATED
from tests.support.numa_machines import bound_pod, holding_pod, machine, reported
from tests.support.reservations import available, reservation
from tests.support.scheduling_world import World, metric, node, pod, thresholds, use


def left(world: World, queried: Pod, candidates: Mapping[str, Sequence[str]]) -> list[str]:
    """The nodes that are left of those with victims by uid."""
    world.read()
    victims = {name: MetaVictims(pods=tuple(MetaPod(uid=uid) for uid in uids)) for name, uids in candidates.items()}
    return list(feasible_candidates(victims, EvaluationQuery(world.indexed(), queried, world.now_ns)))


def test_a_node_is_left_when_the_pod_fits_without_the_victims_and_only_then() -> None:
    world = World(believes_annotations=True)
    for name in ("enough", "short", "tainted", "free"):
        taints = (Taint(key="k", effect="NoSchedule"),) if name == "tainted" else ()
        world.add_node(node(name, cpu="4", taints=taints))
        if name != "free":
            world.add_pod(pod(f"{name}-1", cpu="2", on=name, phase="Running"))
            world.add_pod(pod(f"{name}-2", cpu="2", on=name, phase="Running"))
    candidates = {
        "enough": ("enough-1", "enough-2"),
        "short": ("short-1",),
        "tainted": ("tainted-1", "tainted-2"),
        "free": (),
        "unknown": ("enough-1",),
    }
    assert left(world, pod("p", cpu="4"), candidates) == ["enough", "free"]
    assert left(world, pod("p", cpu="2"), candidates) == ["enough", "short", "free"]


def test_pods_that_do_not_run_on_the_node_free_nothing_and_all_are_back_after_the_answer() -> None:
    world = World(believes_annotations=True)
    world.add_node(node("n", cpu="4"))
    world.add_node(node("m", cpu="4"))
    world.add_pod(pod("x", cpu="4", on="n", phase="Running"))
    world.add_pod(pod("y", cpu="4", on="m", phase="Running"))
    world.read()
    query = EvaluationQuery(world.indexed(), pod("p", cpu="1"), world.now_ns)
    assert not query.feasible_without("n", ("y", "ghost"))
    assert query.feasible_without("n", ("x", "x"))
    assert not query.feasible_without("n", ()), "what was taken off is back"


def test_cpus_of_victims_count_as_free_and_load_does_not_go_with_them() -> None:
    world = World(believes_annotations=True)
    use(world, thresholds(50, 0))
    for name in ("cool", "hot"):
        world.observe(reported(name))
        world.add_node(machine(name))
        world.add_pod(holding_pod(f"{name}-1", "0-15", name))
    world.report(metric("hot", cpu="15"))
    world.report(metric("cool", cpu="1"))
    queried = bound_pod("p", 4, "FullPCPUs", required=True)
    assert left(world, queried, {"cool": ("cool-1",), "hot": ("hot-1",)}) == ["cool"]
    assert left(world, queried, {"cool": ()}) == []


def test_the_node_whose_pods_are_on_their_way_already_is_named_again() -> None:
    def victims(*uids: str, violations: int = 0) -> MetaVictims:
        return MetaVictims(pods=tuple(MetaPod(uid=uid) for uid in uids), num_pdb_violations=violations)

    def nobody(_: str) -> bool:
        return False

    candidates = {"a": victims("a1"), "b": victims("b1"), "c": victims("c1", "c2", violations=1)}
    assert cheapest(candidates, nobody) == "a"
    assert cheapest(candidates, {"b1"}.__contains__) == "b"
    assert cheapest(candidates, {"c1", "c2"}.__contains__) == "c", "what is under way breaks no further budget"
    assert cheapest({}, nobody) == ""


def test_a_pod_that_a_reservation_names_by_object_or_controller_fits_into_it() -> None:
    world = World()
    world.add_node(node("n", cpu="4"))
    owners = [{"object": {"namespace": "d", "name": "mover", "uid": "mover"}}, {"controller": {"uid": "rs-1"}}]
    available(world, reservation("web", "3", owners=owners), "n", allocatable={"cpu": "3"})
    world.read()
    controlled = pod("replica", cpu="3")
    references = (OwnerReference(kind="ReplicaSet", name="rs", uid="rs-1"),)
    controlled = replace(controlled, metadata=replace(controlled.metadata, owner_references=references))
    queries = {
        name: EvaluationQuery(world.indexed(), queried, world.now_ns)
        for name, queried in (("mover", pod("mover", cpu="3")), ("replica", controlled), ("other", pod("o", cpu="3")))
    }
    assert {name: query.feasible("n") for name, query in queries.items()} == {
        "mover": True,
        "replica": True,
        "other": False,
    }
    assert (queries["mover"].allocation("n") or {})[RESERVATION_ALLOCATED] == '{"name":"web","uid":"r-web"}'
