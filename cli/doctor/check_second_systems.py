"""Checks whether another system writes to the cluster, or tried to."""

from collections.abc import Iterator, Sequence

from cli.doctor.finding import Finding
from cli.terminal.durations import age
from shared.events.cluster import ClusterIdentified, SecondSystemRefused
from shared.kube.instants import SECOND
from shared.log.admin.newest_events import Found

REFUSED_WITHIN_S = 24 * 3600
"""Age up to which the refusal of another system is reported."""


def about_second_systems(
    identified: Sequence[Found], refusals: Sequence[Found], writer: Found | None, now_ns: int
) -> Iterator[Finding]:
    """Names the system that manages the cluster where this one was refused, and another one that was refused.

    Args:
        refusals: the newest refusal in the log.
        writer: the newest start of the gateway; one after the refusal shows that it is over.
        now_ns: the wall clock.
    """
    own = [one.record.event.log for one in identified if isinstance(one.record.event, ClusterIdentified)]
    for one in refusals:
        event, passed_s = one.record.event, (now_ns - one.record.at_ns) / SECOND
        assert isinstance(event, SecondSystemRefused)
        if event.refused_log in own:
            if writer is None or writer.record.seq < one.record.seq:
                yield Finding(
                    "error",
                    "cluster",
                    f"this system was refused {age(passed_s)} ago and writes nothing: another live one manages the "
                    f"cluster, log {event.manager_log}, {event.manager}",
                    "end that one and start this one again, or run this one beside it: `koord up --shadow --kubeconfig FILE`, "
                    "KOORD_GATEWAY_SHADOW=true",
                )
        elif passed_s < REFUSED_WITHIN_S:
            yield Finding(
                "warning",
                "cluster",
                f"another system was refused {age(passed_s)} ago, which would write to this cluster, too: log "
                f"{event.refused_log}, {event.refused}",
                "end it, or run it with `koord up --shadow --kubeconfig FILE` or KOORD_GATEWAY_SHADOW=true; this one goes on",
            )
