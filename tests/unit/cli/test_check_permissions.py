"""The remedy for missing rights depends on the account: the manifests grant them to one service account alone."""

import pytest

from cli.doctor.check_cluster import about_lists, about_permissions
from cli.doctor.check_services import about_unreachable
from shared.kube.rbac_permissions import Permissions, Rule
from shared.kube.short_lists import GatewayLists, Unread
from shared.runtime.status import Status
from shared.unreachable import Unreachable

SHADOW = "kubectl apply -f k8s/rbac/shadow.yaml -f k8s/rbac/config-reader.yaml"
ROLE = "ClusterRole koordstream-gateway, and the ClusterRoleBinding of that name"
SHADOW_ROLE = ROLE.replace("gateway", "shadow")
MISSING = (Rule("create", "pods/binding", "", "", "binding pods to their nodes"),)


@pytest.mark.parametrize(
    ("account", "shadow", "remedy"),
    [
        (
            "system:serviceaccount:koordinator-system:koordstream-gateway",
            False,
            f"grant it: `kubectl apply -k k8s/rbac`: {ROLE}",
        ),
        ("", False, f"grant it: `kubectl apply -k k8s/rbac`: {ROLE}"),
        (
            "system:serviceaccount:koordinator-system:koordstream-shadow",
            False,
            (
                "use a kubeconfig of the account koordstream-gateway, to which `kubectl apply -k k8s/rbac` grants it, or write "
                "nothing: `koord up --shadow`"
            ),
        ),
        ("system:serviceaccount:koordinator-system:koordstream-shadow", True, f"grant it: `{SHADOW}`: {SHADOW_ROLE}"),
        (
            "ada",
            True,
            f"use a kubeconfig of the account koordstream-shadow, to which `{SHADOW}` grants it",
        ),
    ],
)
def test_rights_are_granted_to_the_account_that_the_manifests_name(account: str, shadow: bool, remedy: str) -> None:
    found = Permissions("https://kube:6443", 0, "v1.36", account, shadow, missing=MISSING)
    finding = next(one for one in about_permissions(found) if one.severity == "error")
    assert finding.do == remedy


def test_resources_that_may_not_be_read_are_one_finding_with_their_rules_and_the_cluster_role() -> None:
    """Each was an outage of its own, whose remedy was to see that the API server runs."""
    shadow = Permissions("https://kube:6443", 0, "v1.36", "", shadow=True)
    denied = [
        Unread(f"kind-{number}", 40.0, f"list: GET /kinds: 403 forbidden; the rule `list kind-{number}` is missing")
        for number in range(7)
    ]
    away = Unread("pods", 12.0, "watch: GET /api/v1/pods: Connection refused")
    found, outage = about_lists(GatewayLists(unread=(*denied, away)), shadow)
    assert (found.severity, found.area) == ("error", "rbac")
    assert found.what.endswith(
        "what it needs to read: `list kind-0`, `list kind-1`, `list kind-2`, `list kind-3`, `list kind-4` and 2 more rules"
    )
    assert found.do == f"grant it: `{SHADOW}`: {SHADOW_ROLE}"
    assert "pods" in outage.what
    refused = Unreachable("some resources of the API server at https://kube:6443", 0, denied[0].reason)
    status = Status("gateway", "leading", 1, 0, 0.0, 0, {}, bus=True, unreachable=(refused,))
    [of_service] = about_unreachable({"gateway": status})
    assert "ClusterRole koordstream-gateway" in of_service.do


def test_many_missing_rights_are_one_finding() -> None:
    missing = tuple(Rule("list", f"kind-{number:02}", "", "", f"purpose {number:02}") for number in range(30))
    found = Permissions("https://kube:6443", 0, "v1.36", "ada", shadow=True, missing=missing)
    [finding] = [one for one in about_permissions(found) if one.severity == "error"]
    assert f"{missing[0]}, needed for purpose 00; " in finding.what
    assert finding.what.endswith("needed for purpose 04; and 25 more purposes lack rights")
