"""Checks of the cluster: the gateway's permissions, the clocks of the nodes, and the reports of their agents."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from cli.commands.active_config import ConfigStatus
from cli.doctor.check_postgres import clock_finding
from cli.doctor.finding import Finding, Severity
from cli.doctor.one_outage import API_SERVER, OutageFinding
from cli.node.ignored_reports import describe_ignored, remedy_of
from cli.simulated_cluster import edit_advice
from cli.terminal.durations import age
from shared.domain.config_rejection import SOURCE as CONFIG_MAP
from shared.events.cluster import ClusterIdentified, IntentRefused, MissingPermission
from shared.events.devices import NodeDevicesReported
from shared.events.slo import NodeReportsIgnored
from shared.first_names import first_names
from shared.kube.cluster_identity import describe_cluster
from shared.kube.eviction_control import EvictionStatus
from shared.kube.rbac_permissions import Permissions, Rule
from shared.kube.short_lists import GatewayLists, Unread
from shared.log.admin.lag import NodeReport
from shared.log.admin.newest_events import Found

SILENT_REPORTS = 3
"""As many reports must be missing before an agent counts as silent."""
SILENT_AT_LEAST_S = 30.0
UNREAD_S = 180.0
NAMED = 5
"""So many objects are named; the others are counted."""

_ABOUT_PARTS = {
    "scheduling": "docs/plugins.md: what each plugin does, and which are missing",
    "slo": "correct the names; docs/overcommit.md has the fields",
}
"""Where to read on about parts of a configuration without effect, by context."""

_APPLY = "kubectl apply -k k8s/rbac"
_APPLY_SHADOW = "kubectl apply -f k8s/rbac/shadow.yaml -f k8s/rbac/config-reader.yaml"
"""Without the account that writes."""
_ACCOUNT, _SHADOW_ACCOUNT = "koordstream-gateway", "koordstream-shadow"
"""The service accounts to which it grants rights."""


def about_permissions(found: Permissions) -> Iterator[Finding]:
    """Reports the rights of the gateway's account, as the API server reviews them."""
    if found.problem:
        yield OutageFinding(
            "error",
            "rbac",
            f"the gateway cannot query the API server: {found.problem}",
            "see that the API server runs and that KOORD_GATEWAY_KUBECONFIG, or the pod's service account, is accepted by it",
            server=API_SERVER,
            follows="what its account may do is not known",
        )
        return
    who = f"{found.account or 'the gateway'} at {found.server} ({found.version})"
    missing = [
        f"{', '.join(str(rule) for rule in group)}, needed for {needed_for}"
        for needed_for, group in groupby(sorted(found.missing, key=_purpose), key=_purpose)
    ]
    if len(missing) > NAMED:  # one remedy grants all of them
        rest = f"; and {len(missing) - NAMED} more purposes lack rights"
        yield Finding("error", "rbac", f"{who} may not {'; '.join(missing[:NAMED])}{rest}", _remedy(found))
    else:
        yield from (Finding("error", "rbac", f"{who} may not {each}", _remedy(found)) for each in missing)
    if not found.missing:
        what = "read what shadow mode follows" if found.shadow else "do all that effects need"
        yield Finding("ok", "rbac", f"{who} may {what} ({len(found.allowed)} rules)")
    direction = "ahead of" if found.ahead_s > 0 else "behind"
    what = f"the API server's clock is {abs(found.ahead_s):.1f} s {direction} the gateway's"
    yield clock_finding(max(abs(found.ahead_s) - 0.5, 0.0), what)


def _remedy(found: Permissions) -> str:
    """Returns how the account gets its rights: the manifests grant them to one service account alone."""
    own = _SHADOW_ACCOUNT if found.shadow else _ACCOUNT
    apply = _APPLY_SHADOW if found.shadow else _APPLY
    if not found.account or found.account.endswith(f":{own}"):
        return f"grant it: `{apply}`"
    other = "" if found.shadow else ", or write nothing: `koord up --shadow --kubeconfig FILE`"
    return f"use a kubeconfig of the account {own}, to which `{apply}` grants it{other}"


def about_identity(found: Sequence[Found]) -> Iterator[Finding]:
    """Names the cluster that the log describes."""
    for one in found:
        assert isinstance(one.record.event, ClusterIdentified)
        yield Finding("note", "cluster", f"the log describes {describe_cluster(one.record.event.cluster)}")
    if not found:
        what = "the log does not record yet which cluster it describes"
        yield Finding("note", "cluster", what, "start the gateway, or the simulator: it records its cluster first")


def about_lists(found: GatewayLists) -> Iterator[Finding]:
    """Reports lists that are not believed, and resources that are not read."""
    for short in found.short:
        remedy = "if these objects are gone: `koord cluster confirm`; else see why the API server lacks them"
        yield Finding("error", "cluster", f"{short}; it is not believed, and {short.stopped}", remedy)
    by_cause: dict[str, list[Unread]] = {}
    for unread in found.unread:
        by_cause.setdefault(unread.cause, []).append(unread)
    for together in by_cause.values():
        longest = max(together, key=lambda each: each.lasts_s)
        names = first_names([each.resource for each in together], NAMED, rest="more resources")
        unread_for = f"{names} for {age(longest.lasts_s)}"
        yield OutageFinding(
            "error" if longest.lasts_s > UNREAD_S else "warning",
            "cluster",
            f"the gateway has not read {unread_for}: {longest.cause}",
            "see that the API server, and what lies between, responds; every request is repeated",
            server=API_SERVER,
            follows=f"it has not read {unread_for}",
        )
    if not found.short and not found.unread:
        yield Finding("ok", "cluster", "the gateway believes all lists, and reads all resources")


def about_refusals(refusals: Sequence[Found], found: Permissions | None) -> Iterator[Finding]:
    """Intents that ended in MissingPermission, for rules that are still not granted (or not known to be).

    In shadow mode nothing is written: what an earlier start without it was refused needs no right now.
    """
    if found and found.shadow:
        return
    granted = {str(rule) for rule in found.allowed} if found else set()
    by_rule: dict[str, list[str]] = {}
    for one in refusals:
        assert isinstance(one.record.event, MissingPermission)
        by_rule.setdefault(one.record.event.rule, []).append(one.record.event.name)
    for rule, names in by_rule.items():
        if rule in granted:
            continue
        what = f"the gateway was refused `{rule}` for {first_names(names, NAMED)}"
        yield Finding("error", "rbac", what, f"grant it: `{_APPLY}`; what was refused is decided anew")


def about_refused_intents(refused: Sequence[Found]) -> Iterator[Finding]:
    """Names the contexts that asked for what their services do not declare."""
    by_context: dict[str, list[str]] = {}
    for one in refused:
        assert isinstance(one.record.event, IntentRefused)
        if one.record.cause:
            by_context.setdefault(one.record.cause.context, []).append(one.record.event.reason)
    for context, reasons in by_context.items():
        yield Finding(
            "error",
            "credentials",
            f"{len(reasons)} of the newest intents of {context} were refused: {reasons[-1]}",
            f"find out who writes {context}: `koord events --type IntentRefused`; a service of another release, or a stolen login",
        )


def about_evictions(found: EvictionStatus) -> Iterator[Finding]:
    """Reports a hold of all evictions, and those that wait for budget."""
    waiting = f"{found.waiting} wait"
    if found.held_by:
        what = f"all evictions are held by {found.held_by}: {found.held_reason}; {waiting}"
        yield Finding(
            "error", "evictions", what, 'find out who requests them, then `koord evictions release --reason "..."`'
        )
    elif found.waiting:
        reason = f", the oldest because of {found.paused[0].reason}" if found.paused else ""
        yield Finding(
            "warning", "evictions", f"evictions exceed their budget: {waiting}{reason}", "`koord evictions status`"
        )
    else:
        what = f"{found.evicted} of {found.limit} evictions in {found.window_s:.0f} s, none waits"
        yield Finding("ok", "evictions", what)


def about_configuration(found: Sequence[ConfigStatus], *, simulated: bool = False) -> Iterator[Finding]:
    """Checks that the newest configuration of each context is in force."""
    for one in found:
        if one.refused and one.refused.stands:
            in_force = _in_force_instead(one)
            yield Finding(
                "error",
                "configuration",
                f"{one.context}: {one.refused.source} was refused at {one.context}/{one.refused.seq}: {'; '.join(one.refused.faults)}; {in_force}",
                f"correct it{_edit_of(one.refused.source, simulated=simulated)}; it is taken over without a restart (`koord get configs`)",
            )
        elif one.in_force:
            verb = "are" if one.in_force.defaults else "is"
            what = f"{one.context}: {one.in_force.name} {verb} in force since {one.context}/{one.in_force.seq}"
            yield Finding("ok", "configuration", what)
        if one.in_force and one.in_force.deletion:
            what, _, remedy = f"{one.context}: {one.in_force.deletion}".rpartition(": ")
            yield Finding("warning", "configuration", what, remedy)
        if one.in_force and one.in_force.without_effect:
            what = f"{one.context}: of {one.in_force.source}: {'; '.join(one.in_force.without_effect)}"
            # A plugin that is passed over is named as upstream has it; an unknown field is a typing error.
            severity: Severity = "warning" if one.context == "slo" else "note"
            yield Finding(severity, "configuration", what, _ABOUT_PARTS.get(one.context, ""))
        if one.in_force and (addresses := one.in_force.settings.get("open_ports")):
            yield Finding(
                "warning",
                "credentials",
                f"{one.context}: whoever reaches {addresses} may bind and evict pods, for it admits every caller",
                "give the scheduler KOORD_SCHEDULER_TOKEN_FILE or KOORD_SCHEDULER_CLIENT_CA: docs/security.md, Other schedulers",
            )


def _in_force_instead(one: ConfigStatus) -> str:
    """Returns what is in force in the place of a rejected configuration, which mostly is an earlier one of its source."""
    if one.in_force is None:
        return "the built-in one is in force"
    if one.refused is not None and one.in_force.name == one.refused.source:
        return f"what was valid in it by {one.context}/{one.in_force.seq} stays in force"
    return f"{one.in_force.name} {'are' if one.in_force.defaults else 'stays'} in force"


def _edit_of(source: str, *, simulated: bool) -> str:
    """Returns the command that changes the ConfigMap of a configuration; one in a file is corrected there."""
    namespace, slash, name = source.removeprefix(CONFIG_MAP).partition("/")
    if not source.startswith(CONFIG_MAP) or not slash:
        return " there"
    return f": {edit_advice('configmap', name, namespace, simulated=simulated)}"


def about_ignored_reports(found: Sequence[Found], *, simulated: bool = False) -> Iterator[Finding]:
    """Names the nodes of which usage reports that cannot be true are ignored."""
    ignored = [one.record.event for one in found if isinstance(one.record.event, NodeReportsIgnored)]
    for event in sorted(ignored, key=lambda each: each.since_ns)[:NAMED]:
        until = "until then its load counts as unknown, and nothing new is overcommitted there"
        remedy = f"{remedy_of(event, simulated=simulated)}; {until}"
        yield Finding("error", "nodes", describe_ignored(event), remedy)
    if len(ignored) > NAMED:
        what = f"usage reports about {len(ignored) - NAMED} more nodes are ignored"
        yield Finding("error", "nodes", what, "`koord events --type NodeReportsIgnored`")


def about_ignored_inventories(found: Sequence[Found]) -> Iterator[Finding]:
    """Names the nodes of whose device inventory parts are ignored, or could not be read."""
    reports = [one.record.event for one in found if isinstance(one.record.event, NodeDevicesReported)]
    affected = sorted((each for each in reports if each.ignored or each.unread), key=lambda each: each.node)
    for event in affected[:NAMED]:
        parts = event.ignored | {f"type {kind}": reason for kind, reason in event.unread.items()}
        named = "; ".join(f"{part}: {reason}" for part, reason in list(parts.items())[:NAMED])
        more = f"; {len(parts) - NAMED} more" if len(parts) > NAMED else ""
        yield Finding(
            "warning",
            "nodes",
            f"parts of the device inventory of {event.node} do not count: {named}{more}",
            "no pod gets these devices; see the card, its driver and the log of the node's agent there",
        )
    if len(affected) > NAMED:
        what = f"parts of the device inventories of {len(affected) - NAMED} more nodes do not count"
        yield Finding("warning", "nodes", what, "`koord events --type NodeDevicesReported`")


def about_nodes(found: Sequence[NodeReport], *, simulated: bool = False) -> Iterator[Finding]:
    """Checks that the agents of all nodes report. Simulated nodes need none."""
    reporting = [one for one in found if one.age_s is not None]
    if simulated and not reporting:
        return
    if not reporting:
        if found:
            what = f"no agent of the {len(found)} nodes has reported: usage comes from NodeMetric objects alone"
            yield Finding("note", "nodes", what, "run `koord run node-agent` on each node to measure it")
        return
    silent = [one for one in reporting if (one.age_s or 0) > max(SILENT_REPORTS * one.interval_s, SILENT_AT_LEAST_S)]
    for one in silent[:NAMED]:
        yield Finding(
            "error",
            "nodes",
            f"the agent of {one.node} last reported {age(one.age_s or 0)} ago; it reports every {one.interval_s} s",
            "see whether it runs there, and its log: its login, and the address in KOORD_MQTT or KOORD_NATS",
        )
    if len(silent) > NAMED:
        yield Finding("error", "nodes", f"{len(silent) - NAMED} more agents are silent", "as above")
    if never := [one.node for one in found if one.age_s is None]:
        what = f"no agent has reported for {first_names(never, NAMED)}"
        yield Finding(
            "warning", "nodes", what, "run `koord run node-agent` there: without reports a node's load is not known"
        )
    for one in reporting:
        if one.ahead_s > 1:
            finding = clock_finding(
                one.ahead_s, f"the clock of node {one.node} is {one.ahead_s:.1f} s ahead of metrics ingest's"
            )
            if finding.severity != "ok":
                yield finding
    if len(silent) < len(reporting):
        yield Finding("ok", "nodes", f"{len(reporting) - len(silent)} of {len(found)} nodes report")


def _purpose(rule: Rule) -> str:
    return rule.needed_for
