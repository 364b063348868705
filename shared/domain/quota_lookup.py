"""Finds the quota of a pod among the declared ones.

Source: spec/quota.md 2.1; upstream pkg/scheduler/plugins/elasticquota/plugin_helper.go.
"""

from collections.abc import Mapping

from shared.kube.elastic_quota import DEFAULT, QUOTA_NAME, DeclaredQuota


class QuotaLookup:
    """The declared quotas: found by label, by namespace, or by a binding to a namespace.

    Attributes:
        quotas: by name.
    """

    def __init__(self, *, default_group: bool = True) -> None:
        self.quotas: dict[str, DeclaredQuota] = {}
        self._default_group = default_group
        self._of_namespace: dict[str, dict[str, None]] = {}

    def put(self, quota: DeclaredQuota) -> None:
        """Adds or replaces a quota."""
        self.drop(quota.name)
        self.quotas[quota.name] = quota
        for namespace in quota.namespaces:
            self._of_namespace.setdefault(namespace, {})[quota.name] = None

    def drop(self, name: str) -> None:
        """Removes a quota."""
        if (quota := self.quotas.pop(name, None)) is not None:
            for namespace in quota.namespaces:
                self._of_namespace[namespace].pop(name, None)

    def resolve(self, namespace: str, labels: Mapping[str, str] | None) -> tuple[str, str]:
        """Returns the quota of a pod and the rule that found it; empty texts where it has none.

        The rule is `label`, `namespace`, `binding` or `default`.

        A label that names no quota leads to the default group, without a look at the namespace.
        """
        named = (labels or {}).get(QUOTA_NAME, "")
        if not self._default_group:
            return (named, "label") if named in self.quotas else ("", "")
        if named:
            return (named, "label") if named in self.quotas else (DEFAULT, "default")
        same = self.quotas.get(namespace)
        if same is not None and same.namespace == namespace:
            return same.name, "namespace"
        for name in sorted(self._of_namespace.get(namespace, ())):
            return name, "binding"
        return DEFAULT, "default"
