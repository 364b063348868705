"""Requests of an operator about lists that lack many objects: see `services.gateway.watch.incomplete_list_guard`."""

import re

import msgspec

from shared.kube.instants import SECOND, instant_text
from shared.unreachable import Unreachable

SHORT_LISTS = "koord.request.gateway.short-lists"
"""The payload of a request is ignored; the response is the JSON of `GatewayLists`."""

CONFIRM = "koord.request.gateway.confirm"
"""Confirms lists that were shown; the payload is the JSON of `Confirmation`, the response that of `GatewayLists`, with
those that were confirmed."""

NAMED = 5

_REQUEST = re.compile(r"^(\w+: )?(GET \S+: )?")


CLUSTER_IDENTITY = "the namespace kube-system"
"""In place of a resource that is not read: the request by which the gateway finds out that the API server answers."""


class ShortList(msgspec.Struct, frozen=True):
    """A list that is not believed.

    Attributes:
        known: number of objects in the log.
        missing: how many of them the list lacks.
        names: keys of some of those; a response with all of them could be too large for the bus.
        lists: how many consecutive lists were short.
        since_ns: instant of the first of them, nanoseconds since the epoch; 0 from a gateway that does not record it.
    """

    resource: str
    known: int
    missing: int
    names: tuple[str, ...]
    lists: int
    since_ns: int = 0

    @property
    def repeated(self) -> bool:
        """Returns whether the list was repeated and is still short, so that an operator may confirm it."""
        return self.lists > 1

    @property
    def remedy(self) -> str:
        """Returns what to do about it."""
        return "confirm it if they are gone (`koord cluster confirm`)" if self.repeated else "it is being repeated"

    @property
    def halt(self) -> str:
        """Returns what does not happen until the list is whole or confirmed, why, and what to do."""
        return f"{self.stopped}: {self}; {self.remedy}"

    @property
    def stopped(self) -> str:
        """Returns since when effects are stopped."""
        since = f" since {instant_text(self.since_ns // SECOND * SECOND)}" if self.since_ns else ""
        return f"effects are stopped{since}"

    def __str__(self) -> str:
        """Describes the list, with the names of some objects."""
        more = f" and {self.missing - len(self.names)} more" if self.missing > len(self.names) else ""
        return (
            f"the list of {self.resource} lacks {self.missing} of {self.known} that the log has: "
            f"{', '.join(self.names)}{more}"
        )


class Confirmation(msgspec.Struct, frozen=True):
    """Lists whose missing objects an operator confirms to be gone.

    Attributes:
        lists: resource -> `ShortList.lists` of the list that the operator saw. What a later list lacks in addition is
            not confirmed.
    """

    lists: dict[str, int]


class Unread(msgspec.Struct, frozen=True):
    """A resource that is not read.

    Attributes:
        lasts_s: time since the first failure.
        reason: of the newest failure, with the request.
    """

    resource: str
    lasts_s: float
    reason: str

    @property
    def cause(self) -> str:
        """The reason without the request: for people it is enough which resources are not read."""
        return without_request(self.reason)


def without_request(reason: str) -> str:
    """Returns the reason of a failed list or watch without the request with which it begins."""
    return _REQUEST.sub("", reason)


class GatewayLists(msgspec.Struct, frozen=True):
    """The lists of the gateway that leads.

    Attributes:
        short: lists that are not believed; in the response to a confirmation those that were confirmed.
        unread: resources that are not read.
        unreachable: the API server, where it does not answer the gateway; else the resources in one line.
    """

    short: tuple[ShortList, ...] = ()
    unread: tuple[Unread, ...] = ()
    unreachable: tuple[Unreachable, ...] = ()
