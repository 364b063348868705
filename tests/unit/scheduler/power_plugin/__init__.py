"""An out-of-tree plugin: nodes state their power budget in an annotation; pods go where enough of it is."""

from collections.abc import Mapping
from typing import Any

from services.scheduler.framework.plugin_spec import PluginSpec, Point
from services.scheduler.framework.reasons import ReasonText
from services.scheduler.state.cluster_event import ClusterEvent
from shared.errors import KoordError


def read_args(raw: Mapping[str, Any], source: str) -> int:
    """`minWatts` of NodePowerArgs."""
    watts = raw.get("minWatts", 0)
    if not isinstance(watts, int) or watts < 0:
        raise KoordError(f"{source}: minWatts is {watts!r}; give 0 or more")
    return watts


SPEC = PluginSpec(
    name="NodePower",
    implementation="tests.unit.scheduler.power_plugin.plugin:NodePower",
    points=frozenset((Point.FILTER, Point.SCORE)),
    read_args=read_args,
    reasons={"InsufficientPower": ReasonText("Insufficient power, {detail} W needed", "功率不足，需要 {detail} W")},
    queueing_hints={"InsufficientPower": frozenset((ClusterEvent.ANNOTATIONS,))},
    view="node",
)
