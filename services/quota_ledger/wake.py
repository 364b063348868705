"""Which events can make room for a pod that its quota refused.

Source: spec/quota.md 6.2; upstream pkg/scheduler/plugins/elasticquota/queue_hint.go.
"""

from shared.kube.elastic_quota import DeclaredQuota


def wakes_by_quota(before: DeclaredQuota, after: DeclaredQuota, *, own: str, tree: str, above: tuple[str, ...]) -> bool:
    """Whether a changed quota can let a pod in.

    Args:
        own: the pod's quota; `tree` the one it is in.
        above: its ancestors, where those are compared too.
    """
    return after.tree == tree and (after.name == own or after.name in above) and _numbers(before) != _numbers(after)


def wakes_by_pod(quota: str, *, held: bool, own: str, above: tuple[str, ...]) -> bool:
    """Whether a pod that went from `quota` leaves room: it must have held some, there or in an ancestor that is compared."""
    return held and (quota == own or quota in above)


def _numbers(quota: DeclaredQuota) -> tuple[object, ...]:
    return (quota.lends, quota.is_parent, quota.parent, quota.min, quota.max, quota.weight)
