"""Pods and their volumes: where they can be reached, where they can be made, how many a node takes, who shares one."""

from typing import Any

import msgspec
import pytest

from services.scheduler.framework.config.default_profile import DEFAULT_PROFILE
from services.scheduler.state.scheduler_state import SchedulerState
from shared.domain import gang
from shared.events import RecordedEvent
from shared.events.cluster import ObjectDeleted, ObjectObserved
from shared.events.intents import FieldsDesired
from shared.events.scheduling import PlacementReleased, PlacementReserved, PodPlaced
from shared.kube.instants import SECOND
from shared.kube.pod import ClaimSource, EphemeralSource, GoogleDisk, Pod, RbdDisk, Volume
from tests.support.scheduling_world import World, node, placements, pod, unschedulable, use
from tests.unit.scheduler.test_gang_holds import pod_group

CLAIMS, VOLUMES = "persistentvolumeclaims", "persistentvolumes"
CLASSES, CSI_NODES = "storageclasses.storage.k8s.io", "csinodes.storage.k8s.io"
BOUND = {"pv.kubernetes.io/bind-completed": "yes"}
Raw = dict[str, Any]


def world_of(*names: str) -> World:
    world = World()
    for name in names:
        world.add_node(node(name, labels={"host": name, "topology.kubernetes.io/zone": f"zone-{name}"}))
    return world


def has(world: World, resource: str, key: str, **body: Any) -> None:
    namespace, _, name = key.rpartition("/")
    metadata = {"name": name, "uid": f"uid-{name}"} | ({"namespace": namespace} if namespace else {})
    metadata |= body.pop("metadata", {})
    world.observe(ObjectObserved(resource=resource, name=key, uid=f"uid-{name}", object={"metadata": metadata, **body}))


def claim(world: World, name: str, volume: str = "", class_: str = "slow", **more: Any) -> None:
    spec: Raw = {
        "accessModes": more.pop("modes", ["ReadWriteOnce"]),
        "resources": {"requests": {"storage": more.pop("size", "1Gi")}},
        "storageClassName": class_,
    }
    metadata: Raw = more.pop("metadata", {})
    if volume:
        spec["volumeName"] = volume
        metadata = {"annotations": BOUND} | metadata
    has(world, CLAIMS, f"d/{name}", metadata=metadata, spec=spec, status={"phase": more.pop("phase", "Pending")})


def volume(world: World, name: str, *hosts: str, **spec: Any) -> None:
    if hosts:
        term = {"matchExpressions": [{"key": "host", "operator": "In", "values": list(hosts)}]}
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
    metadata = spec.pop("metadata", {})
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "local"} | spec
    has(world, VOLUMES, name, metadata=metadata, spec=spec, status={"phase": "Available"})


def storage_class(world: World, name: str, provisioner: str = "csi.x", **more: Any) -> None:
    mode = more.pop("mode", "WaitForFirstConsumer")
    has(world, CLASSES, name, provisioner=provisioner, volumeBindingMode=mode, **more)


def with_claims(pod: Pod, *claims: str, **volumes: Volume) -> Pod:
    mounted = [Volume(name=f"v{c}", persistent_volume_claim=ClaimSource(claim_name=c)) for c in claims]
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, volumes=(*mounted, *volumes.values())))


def add(world: World, *pods: Pod) -> None:
    for each in pods:
        world.add_pod(each)
    world.read()


def written(records: list[RecordedEvent]) -> dict[str, Raw]:
    return {r.event.name: r.event.patch for r in records if isinstance(r.event, FieldsDesired)}


def test_a_bound_volume_draws_its_pod_to_where_it_can_be_reached() -> None:
    world = world_of("a", "b")
    volume(world, "pv", "b")
    claim(world, "c", "pv")
    add(world, with_claims(pod("p"), "c"))
    assert placements(world.cycle()) == {"p": "b"}


@pytest.mark.parametrize(
    ("make", "code"),
    [
        pytest.param(lambda _: None, "ClaimMissing", id="no claim"),
        pytest.param(lambda w: claim(w, "c", phase="Lost"), "ClaimLost", id="lost"),
        pytest.param(lambda w: claim(w, "c", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}), "ClaimDeleting", id="deleting"),
        pytest.param(lambda w: claim(w, "c"), "ClaimUnbound", id="bound at once, and is not"),
        pytest.param(lambda w: claim(w, "c", "gone"), "VolumeMissing", id="its volume is gone"),
        pytest.param(lambda w: claim(w, "c", class_="wait"), "NoVolumeToBind", id="no volume and none made"),
    ],
)  # fmt: skip
def test_a_claim_with_a_problem_rejects_every_node_with_the_reason(make: Any, code: str) -> None:
    world = world_of("a", "b")
    storage_class(world, "slow", mode="Immediate")
    storage_class(world, "wait", "kubernetes.io/no-provisioner")
    make(world)
    add(world, with_claims(pod("p"), "c"))
    assert unschedulable(world.cycle())["p"].code == code


SELECTED = "volume.kubernetes.io/selected-node"


def held(records: list[RecordedEvent]) -> dict[str, str]:
    return {r.event.holder: r.event.node for r in records if isinstance(r.event, PlacementReserved)}


def released(records: list[RecordedEvent]) -> dict[str, str]:
    return {r.event.holder: r.event.reason for r in records if isinstance(r.event, PlacementReleased)}


def holding_world(timeout_s: int | None = None) -> World:
    """Returns a world in which node b is held for pod p, whose claim waits for a volume there."""
    world = world_of("a", "b")
    if timeout_s is not None:
        use(world, DEFAULT_PROFILE.replace("pluginConfig:\n", VOLUME_ARGS.format(timeout_s=timeout_s), 1))
    allowed = [{"matchLabelExpressions": [{"key": "host", "values": ["b"]}]}]
    storage_class(world, "wait", allowedTopologies=allowed)
    claim(world, "c", class_="wait")
    add(world, with_claims(pod("p", cpu="4", memory=None), "c"))
    records = world.cycle()
    assert placements(records) == {}
    assert held(records) == {"d/p": "b"}
    assert written(records) == {"d/c": {"metadata": {"annotations": {SELECTED: "b"}}}}
    return world


def test_the_node_is_held_for_a_pod_until_its_claims_are_bound() -> None:
    world = holding_world()
    add(world, pod("other", cpu="1", memory=None, selector={"host": "b"}))
    assert unschedulable(world.cycle())["other"].message == (
        "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match Pod's node affinity/selector."
    )
    claim(world, "c", class_="wait", metadata={"annotations": {SELECTED: "b"}})
    world.read()
    assert world.cycles() == []
    world.wait(4)
    volume(world, "made", "b")
    claim(world, "c", "made", class_="wait")
    world.read()
    records = world.cycle()
    assert placements(records) == {"p": "b"}
    assert world.cycle() == []


def test_a_restored_state_binds_a_pod_whose_node_was_held() -> None:
    world = holding_world()
    volume(world, "made", "b")
    claim(world, "c", "made", class_="wait")
    world.read()
    restored = SchedulerState()
    restored.restore(world.view.encode())
    world.view, world.cache = restored, None
    assert placements(world.cycle()) == {"p": "b"}


def test_a_node_that_its_provisioner_rejects_is_released_and_its_claim_is_freed() -> None:
    world = holding_world()
    claim(world, "c", class_="wait", metadata={"annotations": {SELECTED: "b"}})
    claim(world, "c", class_="wait")
    world.read()
    records = world.cycle()
    assert released(records) == {"d/p": "no volume can be provisioned on b for c, or it is another claim by now"}
    assert written(records) == {"d/c": {"metadata": {"annotations": {SELECTED: None}}}}
    assert world.cycles() == [], "it backs off"
    world.wait(1)
    assert held(world.cycle()) == {"d/p": "b"}, "no event is needed"
    assert world.cycles() == [], "a rejection before the hold does not end it"
    claim(world, "c", class_="wait", metadata={"annotations": {SELECTED: "b"}})
    claim(world, "c", class_="wait")
    world.read()
    assert released(world.cycle()).keys() == {"d/p"}
    world.wait(1)
    assert held(world.cycles()) == {}, "each time it backs off for longer"
    world.wait(1)
    assert held(world.cycles()) == {"d/p": "b"}


def test_a_held_node_is_released_when_its_claim_was_deleted_and_came_again() -> None:
    world = holding_world()
    world.observe(ObjectDeleted(resource=CLAIMS, name="d/c", uid="uid-c"))
    claim(world, "c", class_="wait", metadata={"uid": "another"})
    world.read()
    assert released(world.cycle()).keys() == {"d/p"}
    world.wait(1)
    records = world.cycle()
    assert held(records) == {"d/p": "b"}
    assert [r.event.uid for r in records if isinstance(r.event, FieldsDesired)] == ["another"]


VOLUME_ARGS = """pluginConfig:
  - name: VolumeBinding
    args: {{bindTimeoutSeconds: {timeout_s}}}
"""


@pytest.mark.parametrize("timeout_s", [600, 30])
def test_a_node_is_held_no_longer_than_configured(timeout_s: int) -> None:
    world = holding_world(None if timeout_s == 600 else timeout_s)
    world.wait(timeout_s - 1)
    assert world.cycles() == []
    assert world.indexed().next_at_ns() == world.now_ns + SECOND
    world.wait(1)
    assert released(world.cycle()) == {"d/p": f"its volumes were not bound within {timeout_s} s"}


@pytest.mark.parametrize("is_provisioned", [True, False])
def test_a_held_node_waits_no_longer_after_a_clock_that_was_ahead(is_provisioned: bool) -> None:
    world = world_of("b")
    claim(world, "c", class_="wait")
    add(world, with_claims(pod("p", cpu="4", memory=None), "c"))
    world.wait(3600)
    assert set(unschedulable(world.cycle())) == {"p"}, "its class comes later"
    storage_class(world, "wait")
    world.read()
    world.wait(1)
    assert held(world.cycles()) == {"d/p": "b"}
    world.wait(-3600)
    assert world.cycles() == []
    if is_provisioned:
        volume(world, "made", "b")
        claim(world, "c", "made", class_="wait")
        world.read()
        assert placements(world.cycle()) == {"p": "b"}
    else:
        world.wait(600)
        assert released(world.cycle()) == {"d/p": "its volumes were not bound within 600 s"}


def claim_on_another_node(world: World) -> None:
    volume(world, "v", "a")
    claim(world, "c", "v", class_="wait")


@pytest.mark.parametrize(
    ("drop", "reason"),
    [
        (lambda w: w.drop_node("b"), "its node b is gone"),
        (
            lambda w: w.observe(ObjectDeleted(resource=CLAIMS, name="d/c", uid="uid-c")),
            'persistentvolumeclaim "c" not found',
        ),
        (claim_on_another_node, "volume v cannot be reached from b"),
    ],
)
def test_a_held_node_is_released_when_a_part_of_the_choice_is_gone(drop: Any, reason: str) -> None:
    world = holding_world()
    drop(world)
    world.read()
    assert released(world.cycle()) == {"d/p": reason}


def test_the_capacity_held_for_a_deleted_pod_is_free() -> None:
    world = holding_world()
    world.drop_pod("p")
    add(world, pod("other", cpu="4", memory=None, selector={"host": "b"}))
    assert placements(world.cycles()) == {"other": "b"}


def test_a_gang_is_bound_once_the_volumes_of_all_members_are_and_releases_all_nodes_when_one_fails() -> None:
    for fails in (False, True):
        world = world_of("a", "b")
        storage_class(world, "wait")
        pod_group(world, 2, mode="Strict")
        for name in ("p0", "p1", "p2"):
            claim(world, f"c-{name}", class_="wait")
            labels = {gang.POD_GROUP_LABEL: "job"}
            world.add_pod(with_claims(pod(name, cpu="1", memory=None, labels=labels), f"c-{name}"))
        world.read()
        records = world.cycle()
        nodes = held(records)
        assert nodes.keys() == {"d/p0", "d/p1"}
        assert placements(world.cycles()) == {}, "a member beyond the minimum waits for these"
        volume(world, "v0")
        claim(world, "c-p0", "v0", class_="wait")
        world.read()
        assert world.cycles() == []
        if fails:
            claim(world, "c-p1", class_="wait", metadata={"annotations": {SELECTED: nodes["d/p1"]}})
            claim(world, "c-p1", class_="wait")
            world.read()
            assert released(world.cycle()).keys() == {"d/p0", "d/p1"}
            continue
        volume(world, "v1")
        claim(world, "c-p1", "v1", class_="wait")
        world.read()
        bound = world.cycle()
        assert placements(bound) == {"p0": nodes["d/p0"], "p1": nodes["d/p1"]}
        counts = {r.event.annotations[gang.BIND_COUNT[0]] for r in bound if isinstance(r.event, PodPlaced)}
        assert counts == {"2"}


def test_a_gang_that_lacks_a_member_by_now_binds_none() -> None:
    world = world_of("a", "b")
    storage_class(world, "wait")
    claim(world, "c", class_="wait")
    pod_group(world, 2, mode="Strict")
    labels = {gang.POD_GROUP_LABEL: "job"}
    add(world, with_claims(pod("p0", labels=labels), "c"), pod("p1", labels=labels))
    assert held(world.cycle()).keys() == {"d/p0", "d/p1"}
    world.drop_pod("p1")
    volume(world, "v")
    claim(world, "c", "v", class_="wait")
    world.read()
    assert released(world.cycle()) == {"d/p0": "d/job lacks pods by now"}


def test_a_volume_that_is_created_again_is_chosen_anew() -> None:
    world = world_of("a")
    storage_class(world, "local", "kubernetes.io/no-provisioner")
    claim(world, "c", class_="local")
    volume(world, "v", "a")
    add(world, with_claims(pod("p"), "c"))
    assert written(world.cycle()).keys() == {"v"}
    world.observe(ObjectDeleted(resource=VOLUMES, name="v", uid="uid-v"))
    volume(world, "v", "a", metadata={"uid": "another"})
    world.read()
    world.wait(601)
    records = world.cycle()
    world.wait(60)
    records += world.cycle()
    assert [r.event.uid for r in records if isinstance(r.event, FieldsDesired) and r.event.resource == VOLUMES] == [
        "another"
    ]


def test_a_free_volume_is_chosen_smallest_first_and_for_one_claim_only() -> None:
    world = world_of("a", "b")
    storage_class(world, "local", "kubernetes.io/no-provisioner")
    volume(world, "large", "a", capacity={"storage": "9Gi"})
    volume(world, "small", "a", capacity={"storage": "2Gi"})
    for name in ("c0", "c1", "c2"):
        claim(world, name, class_="local")
    add(world, *(with_claims(pod(f"p{number}"), f"c{number}") for number in range(3)))
    records = world.cycle()
    taken = {name: patch["spec"]["claimRef"]["name"] for name, patch in written(records).items()}
    assert taken == {"small": "c0", "large": "c1"}
    world.wait(2)
    claim(world, "other", class_="local")  # what wakes them changes nothing: the volumes are chosen already
    world.read()
    assert written(world.cycle()) == {}
    restored = SchedulerState()
    restored.restore(world.view.encode())
    assert restored.chosen == world.view.chosen
    assert {uid: each.claim for uid, each in restored.chosen.items()} == {"uid-small": "d/c0", "uid-large": "d/c1"}


def test_a_volume_is_not_chosen_for_another_claim_when_its_claim_is_observed_as_bound_before_it_is() -> None:
    """The watch of volumes may lag behind that of claims."""
    world = world_of("a")
    storage_class(world, "local", "kubernetes.io/no-provisioner")
    volume(world, "only", "a", capacity={"storage": "2Gi"})
    claim(world, "c0", class_="local")
    add(world, with_claims(pod("p0"), "c0"))
    assert written(world.cycle()).keys() == {"only"}
    claim(world, "c0", "only", class_="local", phase="Bound")
    claim(world, "c1", class_="local")
    add(world, with_claims(pod("p1"), "c1"))
    records = world.cycle()
    assert written(records) == {}
    assert [each.code for each in unschedulable(records).values()] == ["NoVolumeToBind"]


def test_two_pods_of_one_claim_take_one_volume() -> None:
    world = world_of("a", "b")
    storage_class(world, "local", "kubernetes.io/no-provisioner")
    volume(world, "on-a", "a")
    volume(world, "on-b", "b")
    claim(world, "c", class_="local")
    add(world, with_claims(pod("p0", cpu="1"), "c"), with_claims(pod("p1", cpu="2"), "c"))
    records = world.cycle()
    (chosen,) = written(records)
    world.wait(2)
    add(world, with_claims(pod("p2", cpu="1"), "c"))
    records = world.cycle()
    assert written(records) == {}
    held = {r.event.holder: r.event.node for r in records if isinstance(r.event, PlacementReserved)}
    assert held["d/p2"] == chosen.removeprefix("on-"), "where the volume is that was chosen before"


@pytest.mark.parametrize("cpu", ["1", "2"])
def test_pods_of_one_claim_go_to_the_node_that_its_volume_is_made_for(cpu: str) -> None:
    world = world_of("a", "b")
    storage_class(world, "wait")
    claim(world, "c", class_="wait")
    first, second = with_claims(pod("p", cpu="1", memory=None), "c"), with_claims(pod("q", cpu=cpu, memory=None), "c")
    add(world, first, second)
    records = world.cycle()
    assert len(set(held(records).values())) == 1
    assert held(records).keys() == {"d/p", "d/q"}
    assert list(written(records)) == ["d/c"]


def test_a_later_pod_of_a_claim_waits_where_the_node_of_its_volume_is_full() -> None:
    world = holding_world()
    add(world, with_claims(pod("q", cpu="1", memory=None), "c"))
    message = unschedulable(world.cycle())["q"].message
    assert "other than the one where the volume of a shared PersistentVolumeClaim is being made" in message
    world.drop_pod("p")
    world.read()
    world.wait(60)
    assert held(world.cycles()) == {"d/q": "b"}


def test_two_claims_of_a_pod_need_two_volumes() -> None:
    world = world_of("a", "b")
    storage_class(world, "local", "kubernetes.io/no-provisioner")
    volume(world, "a1", "a")
    volume(world, "b1", "b")
    volume(world, "b2", "b")
    claim(world, "c0", class_="local")
    claim(world, "c1", class_="local")
    add(world, with_claims(pod("p"), "c0", "c1"))
    assert sorted(written(world.cycle())) == ["b1", "b2"]


def test_a_driver_with_published_capacity_provisions_only_where_enough_is_left() -> None:
    world = world_of("a", "b")
    storage_class(world, "wait")
    has(world, "csidrivers.storage.k8s.io", "csi.x", spec={"storageCapacity": True})
    for name, size in (("a", "1Gi"), ("b", "8Gi")):
        has(
            world, "csistoragecapacities.storage.k8s.io", f"s/{name}",
            storageClassName="wait", capacity=size, nodeTopology={"matchLabels": {"host": name}},
        )  # fmt: skip
    claim(world, "c", class_="wait", size="2Gi")
    add(world, with_claims(pod("p"), "c"))
    assert [patch["metadata"]["annotations"].popitem()[1] for patch in written(world.cycle()).values()] == ["b"]


def test_the_claim_of_an_ephemeral_volume_is_named_after_its_pod() -> None:
    world = world_of("a")
    volume(world, "pv", "a")
    claim(world, "p-scratch", "pv")
    add(world, with_claims(pod("p"), scratch=Volume(name="scratch", ephemeral=EphemeralSource())))
    assert placements(world.cycle()) == {"p": "a"}


def test_a_volume_of_two_zones_is_used_in_both_and_no_other() -> None:
    world = world_of("a", "b", "c")
    world.add_node(node("plain"))
    volume(world, "pv", metadata={"labels": {"failure-domain.beta.kubernetes.io/zone": "zone-a__zone-b"}})
    claim(world, "c", "pv")
    add(world, *(with_claims(pod(f"p{number}", ports=(80,)), "c") for number in range(4)))
    records = world.cycle()
    assert set(placements(records).values()) == {"a", "b", "plain"}
    assert world.view.pods["p3"].reasons
    assert "HostPortTaken" in {refusal.code for refusal in unschedulable(records).values()}


def test_a_claim_for_one_pod_refuses_a_second_one_until_the_first_is_gone() -> None:
    world = world_of("a", "b")
    volume(world, "pv", accessModes=["ReadWriteOncePod"])
    claim(world, "c", "pv", modes=["ReadWriteOncePod"])
    add(world, with_claims(pod("p0"), "c"), with_claims(pod("p1"), "c"))
    records = world.cycle()
    assert list(placements(records)) == ["p0"]
    assert unschedulable(records)["p1"].code == "ClaimInUse"
    world.wait(2)
    world.drop_pod("p0")
    world.read()
    assert list(placements(world.cycle())) == ["p1"]


@pytest.mark.parametrize(
    ("first", "second", "shared"),
    [
        (GoogleDisk(pd_name="x"), GoogleDisk(pd_name="x"), False),
        (GoogleDisk(pd_name="x", read_only=True), GoogleDisk(pd_name="x", read_only=True), True),
        (GoogleDisk(pd_name="x"), GoogleDisk(pd_name="y"), True),
        (RbdDisk(monitors=("m1", "m2"), image="i"), RbdDisk(monitors=("m2",), image="i"), False),
        (RbdDisk(monitors=("m1",), image="i"), RbdDisk(monitors=("m2",), image="i"), True),
    ],
    ids=["written twice", "read twice", "two disks", "one image", "two clusters"],
)
def test_a_disk_is_mounted_on_one_node_by_pods_that_can_share_it(first: Any, second: Any, shared: bool) -> None:
    def mounts(name: str, disk: Any) -> Pod:
        kind = "gce_persistent_disk" if isinstance(disk, GoogleDisk) else "rbd"
        return with_claims(pod(name), x=Volume(name="x", **{kind: disk}))

    world = world_of("a")
    add(world, mounts("p0", first), mounts("p1", second))
    records = world.cycle()
    assert set(placements(records)) == ({"p0", "p1"} if shared else {"p0"})
    if not shared:
        assert unschedulable(records)["p1"].code == "DiskConflict"


def test_a_node_attaches_volumes_up_to_the_limit_and_a_shared_one_counts_once() -> None:
    world = world_of("a")
    drivers = [{"name": "csi.x", "allocatable": {"count": 2}}]
    has(world, CSI_NODES, "a", spec={"drivers": drivers})
    for number in range(3):
        volume(world, f"pv{number}", csi={"driver": "csi.x", "volumeHandle": f"h{number}"})
        claim(world, f"c{number}", f"pv{number}")
    add(world, *(with_claims(pod(f"p{number}"), f"c{number}") for number in range(3)), with_claims(pod("q"), "c0"))
    records = world.cycle()
    assert set(placements(records)) == {"p0", "p1", "q"}
    assert unschedulable(records)["p2"].code == "TooManyVolumes"
