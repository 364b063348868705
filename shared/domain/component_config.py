"""The parts that configuration documents of Koordinator's components have in common, and their reading.

Source: spec/api.md 4.3, 4.4; Kubernetes' component-base configuration.
"""

from typing import Any, TypeVar

import msgspec
import yaml

from shared.closest_name import with_closest_field
from shared.errors import KoordError
from shared.type_error_words import in_plain_words
from shared.yaml_fault import yaml_fault

T = TypeVar("T")


class BadConfig(KoordError):
    """A configuration that is rejected.

    Attributes:
        path: place of the fault, as `profiles[0].plugins.filter.enabled[1].name`; empty for the whole text.
        reason: the fault and what to do.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}" if path else reason)
        self.path = path
        self.reason = reason


class Strict(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """Base of documents in which an unknown field is an error."""


class PluginConfig(Strict):
    """A plugin's arguments."""

    name: str
    args: dict[str, Any] | None = None


class LeaderElection(Strict):
    """Upstream's leader election; here the log's writer lock decides."""

    leader_elect: bool | None = None
    lease_duration: str | None = None
    renew_deadline: str | None = None
    retry_period: str | None = None
    resource_lock: str | None = None
    resource_name: str | None = None
    resource_namespace: str | None = None


class ClientConnection(Strict):
    """Upstream's connection to the API server; here the gateway's."""

    kubeconfig: str | None = None
    accept_content_types: str | None = None
    content_type: str | None = None
    qps: float | None = None
    burst: int | None = None


def plain_document(text: str, kind: str) -> dict[str, Any]:
    """Returns a YAML or JSON text as plain data.

    Raises:
        BadConfig: it is no YAML, or no object.
    """
    try:
        plain = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise BadConfig("", f"not YAML: {yaml_fault(error)}") from error
    try:
        found: dict[str, Any] = msgspec.convert(plain, dict)
    except msgspec.ValidationError as error:
        raise BadConfig("", f"{in_plain_words(str(error))}; give a {kind}") from error
    return found


def converted(plain: Any, to: type[T], path: str) -> T:
    """Returns plain data as a document of a type.

    Args:
        path: place of the data in its document.

    Raises:
        BadConfig: it has another shape, or a field that the type does not have.
    """
    try:
        return msgspec.convert(plain, to)
    except msgspec.ValidationError as error:
        reason, _, at = str(error).partition(" - at `$")
        raise BadConfig((path + at.rstrip("`")).lstrip("."), with_closest_field(in_plain_words(reason), to)) from error
