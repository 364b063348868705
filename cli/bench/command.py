"""`koord bench`: figures of this machine, as one JSON object for comparisons."""

import click

from cli.terminal.lazy_group import Entry, LazyGroup

ENTRIES = {
    "agent": Entry(
        "cli.bench.node_agent", "agent", "Measure the cost of the node agent for its node at a sample a second."
    ),
    "answers": Entry("cli.bench.answers", "answers", "Measure how long each reading command takes with a long log."),
    "defrag": Entry(
        "cli.bench.defrag", "defrag", "Measure the search for the moves that admit a waiting pod or gang: no servers."
    ),
    "descheduler": Entry(
        "cli.bench.descheduler", "descheduler", "Measure one cycle of the descheduler on a fleet: no servers."
    ),
    "discovery": Entry(
        "cli.bench.device_discovery", "discovery", "Measure the cost of a fleet's inventories for device discovery."
    ),
    "e2e": Entry("cli.bench.e2e", "e2e", "Measure how fast pods get from the API to their nodes."),
    "gangs": Entry(
        "cli.bench.gangs",
        "gangs",
        "Measure gangs in the scheduler's engine alone: no servers, every node considered and scored.",
    ),
    "ingest": Entry("cli.bench.metrics_ingest", "ingest", "Measure the cost of a fleet's reports for metrics ingest."),
    "log": Entry("cli.bench.log", "log", "Measure the log: append, fold, and the lag of a follower."),
    "memory": Entry("cli.bench.memory", "memory", "Measure the memory of each service's State for one pod."),
    "proxy": Entry(
        "cli.bench.runtime_proxy",
        "proxy",
        "Measure the latency that the runtime proxy adds to a call of the kubelet, without and with a hook in it.",
    ),
    "quota": Entry(
        "cli.bench.quota",
        "quota",
        "Measure the quota ledger: its engine alone, or with --servers what a scheduling cycle waits for.",
    ),
    "relay": Entry(
        "cli.bench.audit_relay", "relay", "Measure the event stream: from the log to JetStream to one subscriber."
    ),
    "scheduler": Entry(
        "cli.bench.scheduler", "scheduler", "Measure the scheduler's engine alone: no servers, every node considered."
    ),
    "slo": Entry("cli.bench.slo", "slo", "Measure the SLO controller's engine alone: no servers."),
    "takeover": Entry(
        "cli.bench.takeover",
        "takeover",
        "Measure a scheduler's start and a standby's take-over: until the first pod is placed.",
    ),
    "webhook": Entry("cli.bench.webhook", "webhook", "Measure the admission webhooks alone: no log, no cluster."),
}


@click.group(cls=LazyGroup, entries=ENTRIES)
def bench() -> None:
    """Measure the log and the path of a pod through the system."""
