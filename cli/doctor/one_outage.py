"""Several findings about one outage become one, which names what follows from it."""

from collections.abc import Iterable

from cli.doctor.finding import Finding

API_SERVER = "API server"
POSTGRES = "Postgres"


class OutageFinding(Finding, frozen=True, kw_only=True):
    """A finding about an outage.

    Attributes:
        server: the kind of the server that is away.
        follows: the same as a consequence, for the finding that names the outage; empty for one that names it itself.
    """

    server: str
    follows: str = ""


def one_for_each_outage(found: Iterable[Finding]) -> list[Finding]:
    """Returns the findings, those about an outage as one that names what follows from it, in the place of the first.

    A consequence alone, of which nothing names the outage, stays as it is.
    """
    everything = list(found)
    outages: dict[str, list[OutageFinding]] = {}
    for one in everything:
        if isinstance(one, OutageFinding):
            outages.setdefault(one.server, []).append(one)
    joined: list[Finding] = []
    for one in everything:
        if not isinstance(one, OutageFinding):
            joined.append(one)
        elif one is outages[one.server][0]:
            joined += _joined(outages[one.server])
    return joined


def _joined(found: list[OutageFinding]) -> list[Finding]:
    named = next((one for one in found if not one.follows), found[0])
    consequences = [one.follows for one in found if one is not named and one.follows]
    others = [one for one in found if one is not named and not one.follows]
    text = "".join(f"; {each}" for each in consequences)
    joined = Finding(named.severity, named.area, named.what + text, named.do)
    return [joined, *(Finding(one.severity, one.area, one.what, one.do) for one in others)]
