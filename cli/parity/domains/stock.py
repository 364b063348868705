"""The plugins of kube-scheduler itself: filters and scores over whole clusters, room and its strategies, scores of
affinity between pods.
"""

from cli.parity.case_domain import Domain
from cli.parity.runners.scheduler.stock import answer

DOMAIN = Domain(answer, remarks=frozenset({"nodeNames"}))
