"""One quota's numbers in upstream's books."""

from shared.domain.amounts import Amounts, capped, largest
from shared.kube.elastic_quota import DeclaredQuota


class QuotaInfo:
    """A quota's declaration, the demand and use of its pods, and its runtime.

    Attributes:
        lends: as declared; never with guaranteed usage.
        self_request, self_used, self_np_request, self_np_used: of its own pods; np: those that must not be preempted.
        child_request: its pods' requests and the limited requests of its children.
        request: `child_request`, at least min when it does not lend.
        used, np_request, np_used: of its whole subtree.
        allocated, guaranteed: with guaranteed usage, the use below it and that amount at least min; empty without.
        demand: the request by which its parent's level shares; None before that level has been notified of the quota.
        shared: resources of its parent's level in which it takes part.
        children: names of the quotas under it.
    """

    def __init__(self, declared: DeclaredQuota, *, lends: bool) -> None:
        self.name = declared.name
        self.declared, self.lends = declared, lends
        self.children: dict[str, None] = {}
        self.demand: Amounts | None = {}
        self.shared: set[str] = set()
        self.runtime: Amounts = {}
        self.scaled_min: Amounts = dict(declared.min)
        self.self_request: Amounts = {}
        self.self_used: Amounts = {}
        self.self_np_request: Amounts = {}
        self.self_np_used: Amounts = {}
        self.clear_sums()

    def clear_sums(self) -> None:
        """Forgets the sums over the subtree."""
        self.child_request: Amounts = {}
        self.request: Amounts = {}
        self.used: Amounts = {}
        self.np_request: Amounts = {}
        self.np_used: Amounts = {}
        self.allocated: Amounts = {}
        self.guaranteed: Amounts = {}

    def limited_request(self) -> Amounts:
        """Returns the request that its parent counts: at most its max."""
        return capped(self.request, self.declared.max)

    def update_request(self) -> None:
        """Recomputes the request from the demand below."""
        self.request = self.child_request if self.lends else largest(self.child_request, self.declared.min)
