"""SPECs agree with the scheduler: watched resources, annotations, reasons; they need no numpy."""

import subprocess
import sys

import pytest

from services.scheduler.framework.plugin_base import Plugin, make_plugin
from services.scheduler.framework.plugin_extension_points import PluginCycleState
from services.scheduler.framework.plugin_spec import PluginSpec, Point
from services.scheduler.framework.post_filter import PostFilterPlugin
from services.scheduler.framework.reasons import ReasonText
from services.scheduler.framework.registry import Registry
from services.scheduler.plugins.registry import PLUGINS, REGISTRY
from services.scheduler.state.pod_equivalence_class import ALLOCATION_ANNOTATIONS
from services.scheduler.state.watched_api_resources import WATCHED
from tests.unit.scheduler import power_plugin


@pytest.mark.parametrize("spec", PLUGINS, ids=lambda spec: spec.name)
def test_every_plugin_is_made_from_its_declaration(spec: PluginSpec) -> None:
    plugin = make_plugin(spec, {}, spec.name)
    assert plugin.spec is spec
    assert isinstance(plugin, PostFilterPlugin if Point.POST_FILTER in spec.points else Plugin)
    assert spec.queueing_hints.keys() == spec.reasons.keys()


def test_the_watched_resources_are_those_that_plugins_read() -> None:
    assert {resource for spec in PLUGINS for resource in spec.reads} == WATCHED.keys()


def test_the_annotations_of_allocations_are_declared_by_the_plugin_that_reserves() -> None:
    written = {name for spec in PLUGINS if spec.reserves for name in spec.annotations}
    assert written >= set(ALLOCATION_ANNOTATIONS)


def test_a_name_and_the_text_of_a_reason_are_declared_once() -> None:
    with pytest.raises(ValueError, match="two plugins have one name"):
        REGISTRY.with_plugins(power_plugin.SPEC, power_plugin.SPEC)
    other = PluginSpec(
        name="Other",
        implementation="",
        points=frozenset(),
        reasons={"HostPortTaken": ReasonText("other", "别的")},
    )
    with pytest.raises(ValueError, match="reason HostPortTaken has two texts"):
        Registry((*PLUGINS, other), defaults={})


def test_the_defaults_of_a_state_pass_every_node_and_score_none() -> None:
    state, pod_class = PluginCycleState(), object()
    assert state.applies_to(pod_class)  # type: ignore[arg-type]
    assert state.filter_at(pod_class, 0) == state.score_at(pod_class, 0) == 0  # type: ignore[arg-type]


def test_reasons_are_printed_without_numpy() -> None:
    code = "import sys, services.scheduler.plugins.registry; print({'numpy', 'numba'} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "set()"
