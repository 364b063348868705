"""An eviction case, or the move of one pod by a PodMigrationJob, in one line."""

import msgspec


class ListedEviction(msgspec.Struct, frozen=True):
    """A case or a job.

    Attributes:
        name: id of the case; name of the job.
        at: when it was opened, or the job began.
        plugin: of the case; for jobs `drain`, or `PodMigrationJob` for those of clients.
        state: `open`, or the outcome: `moved`, `evicted`, `partly`, `none`, `dry run`; of a job also `failed`,
            `aborted` or `deleted`.
        nodes: that its victims leave.
        gain: expected and, once it is closed, measured: `hot cpu 27.2 -> 24 cores, measured 24.1 cores`.
        pods: that are to leave.
        why: a job failed; empty otherwise.
    """

    name: str
    at: str
    profile: str
    plugin: str
    state: str
    victims: int
    passed_over: int
    nodes: tuple[str, ...]
    gain: tuple[str, ...]
    pods: tuple[str, ...] = ()
    why: str = ""
