"""Rights that the API server denies the gateway (403), with the ClusterRole that grants them."""

import re
from collections.abc import Iterable, Iterator

from cli.doctor.finding import Finding
from shared.first_names import first_names
from shared.kube.rbac_permissions import Permissions
from shared.kube.short_lists import Unread

NAMED = 5
"""So many objects are named; the others are counted."""

APPLY = "kubectl apply -k k8s/rbac"
_APPLY_SHADOW = "kubectl apply -f k8s/rbac/shadow.yaml -f k8s/rbac/config-reader.yaml"
"""Without the account that writes."""
_ACCOUNT, _SHADOW_ACCOUNT = "koordstream-gateway", "koordstream-shadow"
"""The service accounts to which the ClusterRoles of the same names grant rights."""

_RULE = re.compile(r"the rule `([^`]+)` is missing")


def denied_rule(reason: str) -> str:
    """Returns the RBAC rule whose want is the reason for which a resource is not read; empty for another reason."""
    found = _RULE.search(reason)
    return found[1] if found else ""


def remedy_of_denial(found: Permissions | None) -> str:
    """Returns how the account gets its rights: the manifests grant them to one service account alone.

    Args:
        found: the rights of the account; None where they are not known.
    """
    if found is None:
        return (
            f"grant it: `{APPLY}` (ClusterRole {_ACCOUNT} and its binding), in shadow mode `{_APPLY_SHADOW}` "
            f"(ClusterRole {_SHADOW_ACCOUNT})"
        )
    own = _SHADOW_ACCOUNT if found.shadow else _ACCOUNT
    apply = _APPLY_SHADOW if found.shadow else APPLY
    if not found.account or found.account.endswith(f":{own}"):
        return f"grant it: `{apply}`: ClusterRole {own}, and the ClusterRoleBinding of that name"
    other = "" if found.shadow else ", or write nothing: `koord up --shadow`"
    return f"use a kubeconfig of the account {own}, to which `{apply}` grants it{other}"


def about_denied(unread: Iterable[Unread], found: Permissions | None) -> Iterator[Finding]:
    """Names the rules without which resources are not read, all in one finding."""
    rules = list(dict.fromkeys(filter(None, (denied_rule(each.reason) for each in unread))))
    if rules:
        named = first_names([f"`{rule}`" for rule in rules], NAMED, rest="more rules")
        what = f"the API server refuses the gateway (403) what it needs to read: {named}"
        yield Finding("error", "rbac", what, remedy_of_denial(found))
