"""The names of kinds, and kubectl's `KIND/NAME`."""

import click

NAMES = (
    ("pod", "pods", "po"),
    ("node", "nodes", "no"),
    ("quota", "quotas", "elasticquota", "elasticquotas", "eq"),
    ("eviction", "evictions"),
    ("slowdown", "slowdowns"),
    ("gang", "gangs", "podgroup", "podgroups", "pg"),
    ("reservation", "reservations"),
    ("config", "configs"),
    ("device", "devices"),
)
"""The names of each kind."""

SINGULAR = {name: names[0] for names in NAMES for name in names}
"""Any name of a kind -> its first one."""

_OF_PODS = ("eviction", "slowdown")
"""Kinds whose objects have the names of pods."""


def kind_of(context: click.Context) -> str:
    """Returns the kind of a command or of the group around it, in the singular; empty where it has none."""
    group = context.parent.info_name if context.parent is not None else None
    return SINGULAR.get(context.info_name or "") or SINGULAR.get(group or "", "")


def without_kind(name: str, namespace: str | None = None) -> str:
    """Returns the name that follows `KIND/`, where that is the kind of the current command; other names as they are.

    Args:
        namespace: of `-n`; `NAMESPACE/NAME` with the same one is no kind.

    Raises:
        UsageError: the name has another kind.
    """
    context = click.get_current_context()
    kind = kind_of(context)
    word, slash, rest = name.partition("/")
    if not kind or not slash or word == namespace or word not in SINGULAR:
        return name
    if SINGULAR[word] == kind or (SINGULAR[word] == "pod" and kind in _OF_PODS):
        return rest
    if kind == "reservation" and SINGULAR[word] == "pod" and "/" in rest:
        return f"pod/{rest}"  # a pod in operating mode acts as a Reservation
    takes = "the name of a pod" if kind in _OF_PODS else f"a {kind}"
    is_namespaced = any(each.name == "namespace" and each.expose_value for each in context.command.params)
    hint = (
        f"; a {'pod' if kind in _OF_PODS else kind} in the namespace {word}: {rest} -n {word}" if is_namespaced else ""
    )
    raise click.UsageError(f"{name} is a {SINGULAR[word]}, and `{context.command_path}` takes {takes}{hint}")
