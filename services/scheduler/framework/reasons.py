"""Reasons for which a node was rejected or a pod was not attempted: stable codes, and their texts in English and
Chinese.

A code never changes once it is released: dashboards, tests and people match on it. The English text is the one that
Kubernetes and Koordinator write into a pod's condition, because existing tools match on it; a detail (a resource, a
taint) is part of the text only where it is part of theirs. Each plugin declares its own reasons
(`PluginSpec.reasons`); here are those of the queue, of quotas and of a pod as a whole.
"""

from collections.abc import Mapping
from typing import NamedTuple


class Reason(NamedTuple):
    """Reason for which one plugin rejects a node.

    Attributes:
        code: a key of FRAMEWORK_REASONS or of a plugin's `reasons`.
        detail: the subject of the code: a resource, a taint; empty when there is nothing to add.
    """

    code: str
    detail: str = ""


class ReasonText(NamedTuple):
    """A reason in words; `{detail}` stands for the detail."""

    english: str
    chinese: str


NO_NODES = "NoNodes"
UNREADABLE_POD = "UnreadablePod"
UNIT_NOT_PLACED = "UnitNotPlaced"
NODE_UNKNOWN = "NodeUnknown"
NETWORK_DOMAIN_TOO_SMALL = "NetworkDomainTooSmall"
NETWORK_TOPOLOGY_UNKNOWN = "NetworkTopologyUnknown"
START_PLANNED = "StartPlanned"

FRAMEWORK_REASONS: Mapping[str, ReasonText] = {
    # Of a pod, by its quota.
    "QuotaExceeded": ReasonText("Insufficient quotas, quotaName: {detail}", "配额不足，配额：{detail}"),
    "NonPreemptibleQuotaExceeded": ReasonText(
        "Insufficient non-preemptible quotas, quotaName: {detail}", "不可抢占 Pod 的保障配额（min）不足，配额：{detail}"
    ),
    "ParentQuotaExceeded": ReasonText(
        "Insufficient quotas of a parent, quotaName: {detail}", "上级配额不足，配额：{detail}"
    ),
    "QuotaRejected": ReasonText(
        "its quota {detail} is rejected: `koord get quotas` has the reason",
        "其配额 {detail} 被拒绝：原因见 `koord get quotas`",
    ),
    "QuotaLedgerUnreachable": ReasonText("the quota ledger does not answer", "配额账本无应答"),
    # Of a node that the scheduler has not observed.
    NODE_UNKNOWN: ReasonText("node(s) were not known", "节点未知"),
    # Of the pod as a whole.
    NO_NODES: ReasonText("no nodes available to schedule pods", "集群中没有节点"),
    UNREADABLE_POD: ReasonText("the pod's requests cannot be read", "无法解析 Pod 的资源请求"),
    # Of a pod that is placed together with others or not at all.
    UNIT_NOT_PLACED: ReasonText(
        "pod {detail}, which is placed together with it, cannot be placed", "须与其同时调度的 Pod {detail} 无法调度"
    ),
    # Of a pod that was not attempted.
    "SchedulingGated": ReasonText(
        "Scheduling is blocked due to non-empty scheduling gates", "Pod 带有调度门控，暂不调度"
    ),
    "Deleting": ReasonText("the pod is being deleted", "Pod 正在删除"),
    "BindingSuppressed": ReasonText("placed in shadow mode; nothing is written", "影子模式下已决策，不写入集群"),
    "OtherScheduler": ReasonText("it waits for scheduler {detail}", "由调度器 {detail} 负责"),
    "BindingUnderWay": ReasonText(
        "it is placed on {detail}; the binding is under way", "已选定节点 {detail}，正在绑定"
    ),
    "PlacementHeld": ReasonText(
        "capacity is held for it without a binding: {detail}", "已预留节点资源，尚未绑定：{detail}"
    ),
    "InQueue": ReasonText("it is tried in one of the next cycles", "已在队列中，即将调度"),
    "NoScheduler": ReasonText(
        "no scheduler has written to this log yet: start one with `koord up`; the first start compiles for a minute or more",
        "尚无调度器写入此日志：请用 `koord up` 启动；首次启动需编译，约一分钟或更久",
    ),
    "BackingOff": ReasonText(
        "it was refused and is not tried again before {detail}", "上次调度失败，{detail} 之前不再尝试"
    ),
    "AwaitsChange": ReasonText(
        "nothing has happened that could end what refused it; it is tried again at {detail} at the latest",
        "尚无能消除其失败原因的变化，最迟 {detail} 再次尝试",
    ),
    "AwaitsQuota": ReasonText("it waits for capacity in its quota", "等待配额空间"),
}
"""Code -> texts."""


class ReasonTexts:
    """Texts of reasons, of several origins."""

    def __init__(self, *origins: Mapping[str, ReasonText]) -> None:
        """Collects texts.

        Raises:
            ValueError: two origins give one code different texts.
        """
        self.by_code: dict[str, ReasonText] = {}
        for origin in origins:
            for code, text_ in origin.items():
                if self.by_code.setdefault(code, text_) != text_:
                    raise ValueError(f"reason {code} has two texts: {self.by_code[code].english!r}, {text_.english!r}")

    def text(self, code: str, detail: str = "", language: str = "en") -> str:
        """A reason in words; an unknown code (written by a newer release) stands for itself.

        Args:
            language: `en` or `zh`.
        """
        known = self.by_code.get(code)
        if known is None:
            return f"{code} ({detail})" if detail else code
        return (known.chinese if language == "zh" else known.english).format(detail=detail)


text = ReasonTexts(FRAMEWORK_REASONS).text
"""Texts of the framework's own reasons."""


def summary(nodes: int, rejected: Mapping[str, int], language: str = "en") -> str:
    """`0/5 nodes are available: 3 Insufficient cpu, 2 Too many pods.`: the message of a pod's condition.

    Args:
        nodes: number of nodes.
        rejected: text of a reason -> number of nodes that it rejects; a node with two reasons counts in both.
    """
    if language == "zh":
        listed = "，".join(sorted(f"{count} 个{words}" for words, count in rejected.items()))
        return f"{nodes} 个节点中没有可用节点：{listed}。" if listed else f"{nodes} 个节点中没有可用节点。"
    listed = ", ".join(sorted(f"{count} {words}" for words, count in rejected.items()))
    return f"0/{nodes} nodes are available: {listed}." if listed else f"0/{nodes} nodes are available."
