"""Namespaces on an API server without controllers: what the controller manager does for them, done by hand."""

from collections.abc import Iterator
from typing import NamedTuple

from cli.dev.kube_client import Api, ApiRefused, Object, Session

DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


class Resource(NamedTuple):
    """A namespaced kind: `path` up to the version (`/apis/apps/v1`), and its plural name."""

    path: str
    plural: str


def create_namespace(api: Api, name: str, labels: dict[str, str] | None = None) -> None:
    """Creates a namespace with the service account `default`, without which no pod is admitted."""
    with api.session() as session:
        _create(session, "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels or {}}})
        create_service_account(session, name, "default")


def create_service_account(session: Session, namespace: str, name: str) -> None:
    """Creates a service account; one that exists is left as it is."""
    _create(session, f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": name}})


def delete_namespace(api: Api, name: str) -> None:
    """Deletes a namespace and all that is in it, at once: no grace period, and no finalizer is waited for."""
    with api.session() as session:
        session.call("DELETE", f"/api/v1/namespaces/{name}")  # from now on nothing new is admitted
        for resource in _deletable(session):
            collection = f"{resource.path}/namespaces/{name}/{resource.plural}"
            if session.call("DELETE", collection, {"gracePeriodSeconds": 0}).get("items"):
                for left in session.call("GET", collection)["items"]:
                    _release(session, f"{collection}/{left['metadata']['name']}")
        namespace = session.call("GET", f"/api/v1/namespaces/{name}")
        namespace["spec"]["finalizers"] = []
        session.call("PUT", f"/api/v1/namespaces/{name}/finalize", namespace)


def _create(session: Session, collection: str, body: Object) -> None:
    try:
        session.call("POST", collection, body)
    except ApiRefused as error:
        if error.reason != "AlreadyExists":
            raise


def _release(session: Session, path: str) -> None:
    try:
        session.call("PATCH", path, {"metadata": {"finalizers": None}})
    except ApiRefused as error:
        if error.reason != "NotFound":
            raise


def _deletable(session: Session) -> Iterator[Resource]:
    """Every namespaced resource that can be deleted as a collection, each in one version."""
    for root in ("/api", "/apis"):
        for group in session.call("GET", root, accept=DISCOVERY)["items"]:
            group_name = group["metadata"].get("name", "")
            version = group["versions"][0]
            path = f"/apis/{group_name}/{version['version']}" if group_name else f"/api/{version['version']}"
            for resource in version.get("resources", ()):
                if resource["scope"] == "Namespaced" and "deletecollection" in resource["verbs"]:
                    yield Resource(path, resource["resource"])
