"""Reservation: pods use capacity that Reservations hold for them, and Reservations are placed like pods."""

from services.scheduler.framework.plugin_spec import Normalize, PluginSpec, Point
from services.scheduler.framework.reasons import ReasonText
from services.scheduler.plugins.reservation.args import UNUSED_ARGS, read_reservation_args
from services.scheduler.state.cluster_event import ClusterEvent

_CAPACITY = frozenset((ClusterEvent.POD_RELEASED, ClusterEvent.ALLOCATABLE, ClusterEvent.RESERVATION))
_PODS = _CAPACITY | {ClusterEvent.POD_ADDED, ClusterEvent.POD_CHANGED}
_CHANGED = frozenset((ClusterEvent.RESERVATION,))

SPEC = PluginSpec(
    name="Reservation",
    implementation="services.scheduler.plugins.reservation.plugin:ReservationPlugin",
    points=frozenset((Point.FILTER, Point.SCORE)),
    read_args=read_reservation_args,
    unused_args=UNUSED_ARGS,
    reasons={
        "NoReservationMatches": ReasonText(
            "node(s) no reservations match reservation affinity", "节点上没有与预留亲和性匹配的资源预留"
        ),
        "UnreadableReservationAffinity": ReasonText("{detail}", "无法解析 Pod 的预留注解：{detail}"),
        "NoReservationMeetsRequest": ReasonText(
            "node(s) no reservation(s) to meet the requirements", "节点上没有满足请求的资源预留"
        ),
        "InsufficientByNode": ReasonText("Insufficient {detail} by node", "节点上预留以外的 {detail} 不足"),
        "InsufficientInReservation": ReasonText("Reservation(s) Insufficient {detail}", "资源预留中的 {detail} 不足"),
        "TooManyPodsInReservation": ReasonText("Reservation(s) Too many pods", "资源预留中的 Pod 数已达上限"),
        "ReservationPolicyConflict": ReasonText(
            "node(s) reservation allocate policy conflict", "节点上已有资源预留的分配策略冲突"
        ),
        "NoPodToPreAllocate": ReasonText(
            "node(s) no pod match reservation with pre allocation required", "节点上没有可供该资源预留预分配的 Pod"
        ),
        "ClusterModeDisabled": ReasonText(
            "reservation requires cluster mode pre-allocation which is disabled", "资源预留的集群预分配模式未启用"
        ),
        "ReservationNodeMismatch": ReasonText(
            "node(s) didn't match the nodeName specified by reservation", "节点不是资源预留指定的节点"
        ),
    },
    queueing_hints={
        "NoReservationMatches": _CHANGED,
        "UnreadableReservationAffinity": frozenset(),
        "NoReservationMeetsRequest": _CAPACITY,
        "InsufficientByNode": _CAPACITY,
        "InsufficientInReservation": _CAPACITY,
        "TooManyPodsInReservation": _CAPACITY,
        "ReservationPolicyConflict": _CAPACITY,
        "ReservationNodeMismatch": frozenset(),
        "ClusterModeDisabled": frozenset(),
        "NoPodToPreAllocate": _PODS,
    },
    normalize=Normalize.OWN,
    cross_node=True,
    counts_placements=True,
    counts_removals=True,
    keeps_capacity=True,
    reserves=True,
    lifts_holds=True,
    requeues=_CHANGED,
    reads=("reservations.scheduling.koordinator.sh",),
    annotations=("scheduling.koordinator.sh/reservation-allocated",),
)
