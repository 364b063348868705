"""The remedy for missing rights depends on the account: the manifests grant them to one service account alone."""

import pytest

from cli.doctor.check_cluster import about_permissions
from shared.kube.rbac_permissions import Permissions, Rule

SHADOW = "kubectl apply -f k8s/rbac/shadow.yaml -f k8s/rbac/config-reader.yaml"
MISSING = (Rule("create", "pods/binding", "", "", "binding pods to their nodes"),)


@pytest.mark.parametrize(
    ("account", "shadow", "remedy"),
    [
        (
            "system:serviceaccount:koordinator-system:koordstream-gateway",
            False,
            "grant it: `kubectl apply -k k8s/rbac`",
        ),
        ("", False, "grant it: `kubectl apply -k k8s/rbac`"),
        (
            "system:serviceaccount:koordinator-system:koordstream-shadow",
            False,
            (
                "use a kubeconfig of the account koordstream-gateway, to which `kubectl apply -k k8s/rbac` grants it, or write "
                "nothing: `koord up --shadow --kubeconfig FILE`"
            ),
        ),
        ("system:serviceaccount:koordinator-system:koordstream-shadow", True, f"grant it: `{SHADOW}`"),
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


def test_many_missing_rights_are_one_finding() -> None:
    missing = tuple(Rule("list", f"kind-{number:02}", "", "", f"purpose {number:02}") for number in range(30))
    found = Permissions("https://kube:6443", 0, "v1.36", "ada", shadow=True, missing=missing)
    [finding] = [one for one in about_permissions(found) if one.severity == "error"]
    assert f"{missing[0]}, needed for purpose 00; " in finding.what
    assert finding.what.endswith("needed for purpose 04; and 25 more purposes lack rights")
