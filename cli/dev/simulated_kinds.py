"""The kinds of the simulated cluster, under the names that kubectl accepts: kind, plural and short name, each alone
or with the group behind it (`elasticquotas.koordinator.sh`, `elasticquotas.v1alpha1.koordinator.sh`).
"""

from collections import Counter
from collections.abc import Iterator

from services.simulator.api.resource_kinds import RESOURCES, Resource
from shared.closest_name import did_you_mean
from shared.errors import KoordError

_SHORT = {
    "pods": "po",
    "nodes": "no",
    "namespaces": "ns",
    "configmaps": "cm",
    "priorityclasses": "pc",
    "replicasets": "rs",
    "elasticquotas": "eq",
    "podgroups": "pg",
    "podmigrationjobs": "pmj",
}


def resources_named(kind: str) -> list[Resource]:
    """Returns the resources of a name; two groups may have a kind of one name, and the more usual one comes first.

    Raises:
        KoordError: there is none; names the closest one, and all that there are.
    """
    given = kind.lower()
    if found := [each for each in RESOURCES if given in _names(each)]:
        return found
    names = [name for each in RESOURCES for name in _names(each)]
    raise _unknown(repr(kind), did_you_mean(given, names))


def resource_of_manifest(api_version: object, kind: object) -> Resource:
    """Returns the resource of an object, by its apiVersion and its kind.

    Raises:
        KoordError: there is none, or a field is missing.
    """
    named = [each for each in RESOURCES if each.kind == kind]
    for each in named:
        if each.api_version == api_version:
            return each
    if named:
        versions = " or ".join(each.api_version for each in named)
        fault = f"{api_version!r} has no kind {kind}" if api_version else "it has no apiVersion"
        raise KoordError(f"{fault}; give {versions}")
    close = did_you_mean(str(kind or ""), [each.kind for each in RESOURCES])
    raise _unknown(repr(str(kind or "")), close)


def group_of(api_version: str) -> str:
    """Returns the group of an apiVersion; empty for `v1`."""
    return api_version.rpartition("/")[0]


def _names(resource: Resource) -> Iterator[str]:
    plural, _, group = resource.name.partition(".")
    own = (resource.kind.lower(), plural, *([_SHORT[plural]] if plural in _SHORT else []))
    yield from own
    if group:
        version = resource.api_version.rpartition("/")[2]
        yield from (f"{name}.{between}{group}" for name in own for between in ("", f"{version}."))


def _unknown(kind: str, close: str) -> KoordError:
    counted = Counter(each.kind for each in RESOURCES)
    known = ", ".join(
        each.kind if counted[each.kind] == 1 else f"{each.kind}.{group_of(each.api_version)}" for each in RESOURCES
    )
    return KoordError(f"the simulated cluster has no kind {kind}{close}; there are {known}")
