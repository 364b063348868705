"""Declarations of quotas as upstream's scheduler reads them, or production's ledger in its place."""

from collections.abc import Mapping
from typing import Any

import msgspec

from cli.parity.upstream.quota.fair_share import wrapped
from cli.parity.upstream.quota.quirks import Quirk, Quirks
from shared.admission.quota.quota_validation import check_self
from shared.admission.rejection import AdmissionRejected
from shared.kube.elastic_quota import DEFAULT, RESERVED, SYSTEM, DeclaredQuota
from shared.kube.quantity import amounts

LARGEST = 2**63 - 1

_STOCK_MAX = {"cpu": str(LARGEST // 5), "memory": str(LARGEST // 5)}
_MAXIMA = {SYSTEM: "systemQuotaGroupMax", DEFAULT: "defaultQuotaGroupMax"}


def stock(group: str, args: Mapping[str, Any], quirks: Quirks) -> DeclaredQuota:
    """Returns a reserved group before its object is delivered: the max of the arguments, and no weight."""
    limit = args.get(_MAXIMA[group]) or _STOCK_MAX
    return bounded(DeclaredQuota(name=group, max=amounts(limit)), quirks)


def bounded(quota: DeclaredQuota, quirks: Quirks) -> DeclaredQuota:
    """Returns a declaration in 64 bits: at most the largest number; by a quirk, weights of reserved groups wrap."""
    if Quirk.WEIGHTS_WRAP not in quirks:
        kinds = {"min": quota.min, "max": quota.max, "weight": quota.weight}
        smaller = {kind: {name: min(size, LARGEST) for name, size in sizes.items()} for kind, sizes in kinds.items()}
        return msgspec.structs.replace(quota, **smaller)
    if quota.name not in RESERVED:
        return quota
    return msgspec.structs.replace(quota, weight={name: wrapped(size) for name, size in quota.weight.items()})


def keeps_rules(raw: Mapping[str, Any], quota: DeclaredQuota) -> bool:
    """Returns whether an object breaks no rule that quotas have on their own."""
    try:
        check_self(dict(raw), quota)
    except AdmissionRejected:
        return False
    return True


def is_same(one: DeclaredQuota, other: DeclaredQuota) -> bool:
    """Returns whether two declarations make the same tree."""
    fields = ("lends", "is_parent", "parent", "max", "min", "weight")
    return all(getattr(one, field) == getattr(other, field) for field in fields)
