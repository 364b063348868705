"""The memory that a running pod takes in the State: there may be a million."""

from cli.bench.memory import NOW_NS, bytes_of_state
from cli.bench.takeover_cluster import fleet

NODES = 64
PODS = 1024


def test_a_running_pod_and_its_part_of_a_report_take_less_than_600_bytes() -> None:
    bytes_of_state("scheduler", fleet(NODES, 4 * PODS, NOW_NS))  # what stays for the whole process is not counted
    few, many = (bytes_of_state("scheduler", fleet(NODES, pods, NOW_NS)) for pods in (2 * PODS, 4 * PODS))
    assert (many - few) / (2 * PODS) < 600
