"""Annotations of objects that are kept in events: those that a decision of this system depends on.

Source: spec/api.md 0 (this system's own), spec/scheduler-workloads.md 5 (device vendors), and what stock schedulers and
deschedulers read.
"""

from functools import lru_cache

KEPT_DOMAINS = (
    "koordinator.sh",
    "scheduling.sigs.k8s.io",
    "scheduler.alpha.kubernetes.io",
    "descheduler.alpha.kubernetes.io",
    "cluster-autoscaler.kubernetes.io",
    "controller.kubernetes.io",
    "huawei.com",
    "hami.io",
    "cambricon.com",
    "metax-tech.com",
)
"""Domains, with their subdomains, whose annotations are kept."""

MIRROR = "kubernetes.io/config.mirror"
"""Annotation of the API's image of a static pod: the uid under which its node runs it."""

KEPT_ANNOTATIONS = frozenset({"kubernetes.io/config.source", MIRROR})
"""Single annotations that are kept: they mark static pods and their mirrors."""


@lru_cache(maxsize=4096)
def keeps(annotation: str) -> bool:
    """Reports whether an annotation is kept."""
    domain, _, _ = annotation.rpartition("/")
    return annotation in KEPT_ANNOTATIONS or any(domain == kept or domain.endswith("." + kept) for kept in KEPT_DOMAINS)
