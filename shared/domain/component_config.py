"""The parts that configuration documents of Koordinator's components have in common, and their reading.

Source: spec/api.md 4.3, 4.4; Kubernetes' component-base configuration.
"""

from collections.abc import Callable, Collection
from typing import Any, TypeVar

import msgspec
import yaml

from shared.closest_name import did_you_mean, with_closest_field
from shared.domain.all_faults import Fault, all_faults
from shared.domain.node_selection import problem_of
from shared.errors import KoordError
from shared.kube.instants import BadTime, duration_ns
from shared.kube.selectors import LabelSelector
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


def check_one_of(value: str, known: Collection[str], path: str) -> None:
    """Checks a name.

    Raises:
        BadConfig: it is none of the known ones; the reason suggests the closest, or lists all.
    """
    if value not in known:
        others = did_you_mean(value, known) or f"; there are {', '.join(known)}"
        raise BadConfig(path, f"{value!r}{others}")


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


def faults_of(text: str, read: Callable[[str], object]) -> list[Fault]:
    """Returns all faults of a document; none of one that can be read.

    Args:
        read: reads a document; raises BadConfig at its first fault.
    """
    try:
        plain = yaml.safe_load(text)
    except yaml.YAMLError:
        plain = None
    first = _first_fault(text, read)
    if first is None or not isinstance(plain, dict):
        return [first] if first else []
    return all_faults(plain, lambda rest: _first_fault(yaml.safe_dump(rest), read))


def _first_fault(text: str, read: Callable[[str], object]) -> Fault | None:
    try:
        read(text)
    except BadConfig as error:
        return Fault(error.path, error.reason)
    return None


def duration(text: str | None, path: str) -> int:
    """Returns a Go duration in nanoseconds; 0 for an absent one.

    Raises:
        BadConfig: it is none.
    """
    try:
        return 0 if text is None else duration_ns(text)
    except BadTime as error:
        raise BadConfig(path, str(error)) from error


def duration_from_zero(text: str | None, path: str) -> int:
    """Returns a Go duration in nanoseconds that is not negative; 0 for an absent one.

    Raises:
        BadConfig: it is none, or negative.
    """
    found = duration(text, path)
    if found < 0:
        raise BadConfig(path, f"{text!r} is negative; give 0s or more")
    return found


def check_selector(selector: LabelSelector | None, path: str) -> None:
    """Checks a label selector.

    Raises:
        BadConfig: it cannot be read.
    """
    if selector is not None and (problem := problem_of(selector)):
        raise BadConfig(path, problem)
