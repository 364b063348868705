"""An out-of-tree plugin: pods with the same value of a label are placed as a whole or not at all."""

from services.scheduler.framework.plugin_spec import PluginSpec, Point

GROUP = "example.com/group"

SPEC = PluginSpec(
    name="LabelGroups",
    implementation="tests.unit.scheduler.group_plugin.plugin:LabelGroups",
    points=frozenset((Point.PERMIT,)),
    groups_pods=True,
)
