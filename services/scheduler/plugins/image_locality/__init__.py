"""ImageLocality: prefers nodes that already have the images of a pod."""

from services.scheduler.framework.plugin_spec import PluginSpec, Point

SPEC = PluginSpec(
    name="ImageLocality",
    implementation="services.scheduler.plugins.image_locality.plugin:ImageLocality",
    points=frozenset((Point.SCORE,)),
    node_only=True,
)
