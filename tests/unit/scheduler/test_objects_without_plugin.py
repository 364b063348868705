"""Gangs, Reservations and devices that the configuration in force does not read are found."""

from pathlib import Path

import yaml

from cli.doctor.check_unread_objects import about_unread_objects
from services.scheduler.configuration import config_drafts
from services.scheduler.explain.gang_status import IGNORED, gang_status
from services.scheduler.explain.objects_without_plugin import objects_without_plugin
from services.scheduler.explain.waiting_order_config import rules_in_force
from shared.domain import gang
from shared.domain.offered_config import OfferedConfig
from shared.events.cluster import ObjectObserved
from shared.kube.resource_names import POD_GROUPS
from tests.support.device_machines import devices, gpu_node, gpu_pod
from tests.support.reservations import observe, reservation
from tests.support.scheduling_world import World, node, pod

EXAMPLE = Path(__file__).parents[3] / "k8s" / "examples" / "scheduler-config-loadaware.yaml"
WITHOUT = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: koord-scheduler
  plugins: {filter: {enabled: [{name: LoadAwareScheduling}]}}
"""


def _world(config: str) -> World:
    world = World()
    world.add_node(node("n", cpu="8"))
    body = {"metadata": {"name": "train", "namespace": "d"}, "spec": {"minMember": 2}}
    world.observe(ObjectObserved(resource=POD_GROUPS, name="d/train", uid="train", object=body))
    world.add_pod(pod("a", cpu="1", labels={gang.POD_GROUP_LABEL: "train"}))
    observe(world, reservation("web", "2"))
    world.append_drafts(config_drafts(world.view, OfferedConfig("file f", config)))
    world.read()
    world.view.read()
    return world


def test_a_profile_without_their_plugins_ignores_gangs_and_reservations() -> None:
    view = _world(WITHOUT).view
    rules = rules_in_force(view)
    gangs, reservations = objects_without_plugin(view, rules)
    assert (gangs.names, gangs.profiles, gangs.plugin) == (("d/train",), ("koord-scheduler",), "Coscheduling")
    assert (reservations.names, reservations.plugin) == (("web",), "Reservation")
    status = gang_status(view, rules, "d/train")
    assert status is not None
    assert (status.state, status.lacks) == (IGNORED, "profile koord-scheduler does not enable Coscheduling")
    first, second = about_unread_objects((gangs, reservations))
    assert first.what == (
        "1 gang (d/train): members are placed one by one, since profile koord-scheduler does not enable Coscheduling"
    )
    assert "1 Reservation (web): no pod uses held capacity" in second.what
    assert {first.severity, second.severity} == {"warning"}


def _with_devices(config: str) -> World:
    """A node with a Device and one without, and pods that request GPUs: on either, waiting, ended, and one without."""
    world = _world(config)
    world.observe(devices("gpu-1"))
    for name in ("gpu-1", "plain"):
        world.add_node(gpu_node(name))
    for name, on in (("late", ""), ("training", "gpu-1"), ("elsewhere", "plain")):
        world.add_pod(gpu_pod(name, {"nvidia.com/gpu": "1"}, on=on))
    world.add_pod(pod("over", extra={"nvidia.com/gpu": "1"}, on="gpu-1", phase="Succeeded"))
    world.add_pod(pod("web", cpu="1", on="gpu-1"))
    world.read()
    world.view.read()
    return world


def test_a_profile_without_device_share_allocates_no_devices() -> None:
    view = _with_devices(WITHOUT).view
    *_, found, pods = about_unread_objects(objects_without_plugin(view, rules_in_force(view)))
    lacking = "profile koord-scheduler does not enable DeviceShare"
    assert found.what == f"1 Device (gpu-1): no pod is allocated devices, since {lacking}"
    assert pods.what == f"2 pods (d/late, d/training): placed without any device of their own, since {lacking}"
    assert found.severity == pods.severity == "warning"
    assert found.do.startswith("enable DeviceShare as k8s/examples/scheduler-config-loadaware.yaml does")


def test_pods_of_the_one_profile_that_allocates_no_devices_are_found() -> None:
    view = _with_devices(
        WITHOUT + "- {schedulerName: b, plugins: {multiPoint: {enabled: [{name: DeviceShare}]}}}\n"
    ).view
    *_, pods = objects_without_plugin(view, rules_in_force(view))
    assert (pods.kind, pods.profiles) == ("pod", ("koord-scheduler",))
    assert "Device" not in [each.kind for each in objects_without_plugin(view, rules_in_force(view))]


def test_requests_for_devices_are_the_kubelets_where_no_node_has_a_device() -> None:
    world = _world(WITHOUT)
    world.add_pod(gpu_pod("late", {"nvidia.com/gpu": "1"}))
    world.read()
    world.view.read()
    found = objects_without_plugin(world.view, rules_in_force(world.view))
    assert [each.kind for each in found] == ["gang", "Reservation"]


def test_the_example_of_a_configuration_reads_them_all() -> None:
    config = yaml.safe_load(EXAMPLE.read_text())["data"]["koord-scheduler-config"]
    view = _with_devices(config).view
    assert list(objects_without_plugin(view, rules_in_force(view))) == []
