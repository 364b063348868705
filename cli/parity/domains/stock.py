"""The plugins of kube-scheduler itself: filters and scores over whole clusters, room and its strategies, scores of affinity between pods."""

from cli.parity.domain import Domain
from services.scheduler.parity.stock import answer

DOMAIN = Domain(answer)
