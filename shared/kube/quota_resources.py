"""Resources in the max of a quota that no pod can request: a typing error, which would pass as a limit of its own.

Source: k8s.io/kubernetes/pkg/apis/core/helper, IsStandardContainerResourceName and IsNativeResource: a name without a
domain is one of Kubernetes' own, and a container may request few of them.
"""

from collections.abc import Iterable

from shared.kube.elastic_quota import DeclaredQuota

COMMON = ("cpu", "memory", "ephemeral-storage", "pods")
"""Resources without a domain that a quota may have. No container requests `pods`, which quotas of Kubernetes have."""

_HUGE_PAGES = "hugepages-"


def faults_of(quota: DeclaredQuota) -> tuple[str, ...]:
    """Returns the settings of a quota that have no effect, and those of its resources that no pod can request."""
    return (*quota.ignored, *never_requested(quota.max))


def never_requested(resources: Iterable[str]) -> tuple[str, ...]:
    """Returns a sentence about each resource that no pod can request, with the one that is probably meant."""
    found = [name for name in sorted(resources) if not ("/" in name or name in COMMON or name.startswith(_HUGE_PAGES))]
    if not found:
        return ()
    from shared.closest_name import did_you_mean  # only here: it takes a tenth of a command's start

    return tuple(
        f"max of {name!r} limits nothing, since no pod can request it{did_you_mean(name, COMMON)}" for name in found
    )
