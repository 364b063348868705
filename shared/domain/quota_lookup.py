"""Which quota a pod belongs to, by the quotas that there are.

Source: spec/quota.md 2.1; upstream pkg/scheduler/plugins/elasticquota/plugin_helper.go.
"""

from collections.abc import Mapping

from shared.kube.elastic_quota import DEFAULT, QUOTA_NAME, DeclaredQuota


class QuotaLookup:
    """The quotas that pods may name, by any of the three ways.

    Attributes:
        quotas: by name.
    """

    def __init__(self, *, default_group: bool = True) -> None:
        self.quotas: dict[str, DeclaredQuota] = {}
        self._default_group = default_group
        self._of_namespace: dict[str, dict[str, None]] = {}

    def put(self, quota: DeclaredQuota) -> None:
        """A quota's object is this."""
        self.drop(quota.name)
        self.quotas[quota.name] = quota
        for namespace in quota.namespaces:
            self._of_namespace.setdefault(namespace, {})[quota.name] = None

    def drop(self, name: str) -> None:
        """A quota's object is gone."""
        if (quota := self.quotas.pop(name, None)) is not None:
            for namespace in quota.namespaces:
                self._of_namespace[namespace].pop(name, None)

    def resolve(self, namespace: str, labels: Mapping[str, str] | None) -> tuple[str, str]:
        """The quota of a pod, and how it was found: `label`, `namespace`, `binding`, `default`; both empty when
        nobody's.

        A label that names no quota leads to the default group, not to the rules of namespaces.
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
