"""What the gateway answers when it is asked what its account may do on the cluster."""

import msgspec

SUBJECT = "koord.request.gateway.permissions"
"""Any message asks; the answer is the JSON of `Permissions`."""


class Rule(msgspec.Struct, frozen=True):
    """One thing that the gateway needs to be allowed.

    Attributes:
        verb, resource, group: as in a rule of RBAC; the resource with its subresource, `pods/binding`.
        namespace: where; empty means in all of them.
        needed_for: what does not work without it, for people.
        name: of the one object that it is about; empty for all.
    """

    verb: str
    resource: str
    group: str
    namespace: str
    needed_for: str
    name: str = ""

    def __str__(self) -> str:
        """As in the outcome MissingPermission: `verb resource.group`."""
        plural, _, part = self.resource.partition("/")
        named = ".".join(filter(None, (plural, self.group))) + (f"/{part}" if part else "")
        one = f" {self.name}" if self.name else ""
        return f"{self.verb} {named}{one}" + (f" in {self.namespace}" if self.namespace else "")


class Permissions(msgspec.Struct, frozen=True):
    """The API server's own word on each rule that the gateway needs.

    Attributes:
        server: the API server's address.
        version: of the API server.
        account: who the gateway is to it; empty when the server does not say.
        shadow: the gateway writes nothing, so only rules for reading were asked about.
        allowed, missing: the rules.
        now_ns: the gateway's clock.
        ahead_s: how far the API server's clock is ahead of the gateway's, from its Date header, which has whole seconds.
        problem: why the server could not be asked; the rest is empty then.
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
