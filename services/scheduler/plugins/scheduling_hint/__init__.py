"""SchedulingHint: restricts and orders the nodes of a pod by its scheduling hint annotation."""

from services.scheduler.framework.plugin_spec import PluginSpec, Point
from services.scheduler.framework.reasons import ReasonText
from services.scheduler.plugins.helper.scheduling_hint_annotation import UNREADABLE_ANNOTATION
from services.scheduler.plugins.scheduling_hint.args import read_hint_args

SPEC = PluginSpec(
    name="SchedulingHint",
    implementation="services.scheduler.plugins.scheduling_hint.plugin:SchedulingHint",
    points=frozenset((Point.PRE_FILTER,)),
    read_args=read_hint_args,
    reasons={
        "HintMismatch": ReasonText("node(s) didn't satisfy plugin(s) [SchedulingHint]", "节点不在调度提示给出的范围内"),
        "UnreadableAnnotation": UNREADABLE_ANNOTATION,
    },
    queueing_hints={
        **dict.fromkeys(("HintMismatch", "UnreadableAnnotation"), frozenset()),
    },
    node_only=True,
    prefers_nodes=True,
)
