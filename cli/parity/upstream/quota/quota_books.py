"""The objects that a recorded history has left, and the trees in which they are counted."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from cli.parity.upstream.quota.quirks import Quirks
from cli.parity.upstream.quota.quota_tree import QuotaTree
from services.quota_ledger.pods.pod_request import counted_request
from shared.domain.amounts import Amounts, mask
from shared.domain.quota_lookup import QuotaLookup
from shared.kube.instants import SECOND, instant_ns
from shared.kube.pod import Pod

Raw = Mapping[str, Any]


class PodVersion(NamedTuple):
    """A pod's object of one event.

    Attributes:
        ignored: it is terminating, and a feature gate leaves it out.
    """

    pod: Pod
    ignored: bool


class QuotaBooks:
    """Quotas and the amounts that they count, without the pods.

    Attributes:
        args, gates, now_ns: the plugin's arguments, the enabled feature gates and the time of a case.
        trees: by tree id; the default one always exists.
        tree_of: quota -> tree id.
        names: the quotas that pods may belong to.
    """

    def __init__(self, given: Raw, quirks: Quirks) -> None:
        self.args: Raw = given["args"]
        self.gates = set(given["featureGates"])
        self.now_ns = instant_ns(given["now"])
        self.quirks = quirks
        self.trees: dict[str, QuotaTree] = {}
        self.tree_of: dict[str, str] = {}
        self.names = QuotaLookup(default_group="DisableDefaultQuota" not in self.gates)

    def tree(self, name: str) -> QuotaTree:
        """Returns a tree, made at its first mention."""
        if name not in self.trees:
            self.trees[name] = QuotaTree(
                self.quirks,
                scales_min=self.args.get("enableMinQuotaScale", True),
                guarantees="ElasticQuotaGuaranteeUsage" in self.gates,
            )
        return self.trees[name]

    def resolve(self, pod: Pod) -> tuple[str, str]:
        """Returns quota and tree of a pod; both empty when it belongs to none."""
        name, _ = self.names.resolve(pod.metadata.namespace, pod.metadata.labels)
        return name, self.tree_of.get(name, "")

    def request(self, pod: Pod) -> Amounts:
        """Returns everything that a pod requests, as quotas count it."""
        return counted_request(pod, overhead="ElasticQuotaIgnorePodOverhead" not in self.gates)

    def counted(self, quota: str, tree: str, pod: Pod) -> Amounts:
        """Returns a pod's request in the resources that a quota counts now."""
        info = self.trees[tree].quotas.get(quota) if tree in self.trees else None
        return mask(self.request(pod), info.declared.max) if info else {}

    def read(self, raw: Raw) -> PodVersion:
        """Reads a pod's object."""
        metadata = raw["metadata"]
        is_ignored = False
        if at := metadata.get("deletionTimestamp"):
            grace_ns = (metadata.get("deletionGracePeriodSeconds") or 0) * SECOND
            is_over = self.now_ns > instant_ns(at) + grace_ns
            is_ignored = "ElasticQuotaImmediateIgnoreTerminatingPod" in self.gates or (
                is_over and "ElasticQuotaIgnoreTerminatingPod" in self.gates
            )
        return PodVersion(msgspec.convert(raw, Pod), is_ignored)
