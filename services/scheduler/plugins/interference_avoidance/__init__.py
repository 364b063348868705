"""InterferenceAvoidance: keeps best-effort pods away from nodes on which they would slow others down; not upstream's."""

from services.scheduler.framework.plugin_spec import Normalize, PluginSpec, Point
from services.scheduler.framework.reasons import ReasonText
from shared.domain.interference import INTERFERED

SPEC = PluginSpec(
    name="InterferenceAvoidance",
    implementation="services.scheduler.plugins.interference_avoidance.plugin:InterferenceAvoidance",
    points=frozenset((Point.SCORE,)),
    zero_score=ReasonText(
        f"best-effort pods avoid it: they slow down a pod there (label {INTERFERED})",
        f"尽力而为 Pod 避开该节点：其上有 Pod 受到干扰（标签 {INTERFERED}）",
    ),
    normalize=Normalize.DOWN,
    node_only=True,
)
