"""Service accounts on a real API server, and what it grants them."""

import ssl

from cli.dev.kube_client import Api
from cli.dev.local_control_plane import Cluster

NAMESPACE = "koordinator-system"

Grants = dict[tuple[str, str], set[str]]  # (group, resource) -> verbs

ANYONE = {"authentication.k8s.io", "authorization.k8s.io"}  # reviews about oneself, granted to every user


def as_account(cluster: Cluster, account: str) -> Api:
    """Returns the API with the account's token and without the administrator's certificate."""
    token = cluster.service_account_token(NAMESPACE, account)
    tls = ssl.create_default_context(cafile=str(cluster.ca_file))
    return Api(cluster.api.host, cluster.api.port, tls, token)


def granted(api: Api, namespace: str) -> Grants:
    """Returns the rules of the user of `api` in a namespace and on cluster-scoped resources."""
    review = {"spec": {"namespace": namespace}}
    answer = api.call("POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", review)["status"]
    assert not answer["incomplete"]
    found: Grants = {}
    for rule in answer["resourceRules"]:
        for group in set(rule["apiGroups"]) - ANYONE:
            for resource in rule["resources"]:
                name = f" {','.join(rule['resourceNames'])}" if "resourceNames" in rule else ""
                found.setdefault((group, resource + name), set()).update(rule["verbs"])
    return found
