"""The RBAC permissions of the gateway's account, as the gateway reports them on request."""

import msgspec

SUBJECT = "koord.request.gateway.permissions"
"""The payload of a request is ignored; the response is the JSON of `Permissions`."""


class Rule(msgspec.Struct, frozen=True):
    """An RBAC rule that the gateway needs.

    Attributes:
        verb, resource, group: as in RBAC; the resource with its subresource, `pods/binding`.
        namespace: of the rule; empty for all.
        needed_for: the function that fails without it, for people.
        name: of a single object; empty for all.
    """

    verb: str
    resource: str
    group: str
    namespace: str
    needed_for: str
    name: str = ""

    def __str__(self) -> str:
        """Formats the rule as the outcome MissingPermission does: `verb resource.group`."""
        plural, _, part = self.resource.partition("/")
        named = ".".join(filter(None, (plural, self.group))) + (f"/{part}" if part else "")
        one = f" {self.name}" if self.name else ""
        return f"{self.verb} {named}{one}" + (f" in {self.namespace}" if self.namespace else "")


class Permissions(msgspec.Struct, frozen=True):
    """The API server's review of each rule that the gateway needs.

    Attributes:
        server: the API server's address.
        version: of the API server.
        account: of the gateway; empty when the server does not report it.
        shadow: the gateway writes nothing, so only rules for reading were reviewed.
        allowed, missing: the rules.
        now_ns: the gateway's clock.
        ahead_s: lead of the API server's clock over the gateway's, from its Date header, which has whole seconds.
        problem: the reason why the request to the server failed; the rest is empty then.
    """

    server: str
    now_ns: int
    version: str = ""
    account: str = ""
    shadow: bool = False
    allowed: tuple[Rule, ...] = ()
    missing: tuple[Rule, ...] = ()
    ahead_s: float = 0.0
    problem: str = ""
