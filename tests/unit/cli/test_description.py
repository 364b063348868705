"""The layout of `koord describe`."""

from cli.describe.description import Table, text_of
from cli.terminal.amounts import human_amount, human_amounts


def test_labels_are_in_one_column_lists_below_their_first_line_and_tables_below_their_label() -> None:
    pods = Table(("name", "cpu"), [("web-0", "1"), ("batch-00", "500m")], right=("cpu",))
    assert text_of(
        {"Name": "n1", "Labels": ["a=b", "c=d"], "Node": "", "Pods": pods, "Events": Table(("at",), [])}
    ) == (
        "Name:    n1\n"
        "Labels:  a=b\n"
        "         c=d\n"
        "Node:    <none>\n"
        "Pods:\n"
        "  NAME       CPU\n"
        "  web-0        1\n"
        "  batch-00  500m\n"
        "Events:  <none>\n"
    )


def test_amounts_are_human() -> None:
    """4611686018427387 was printed for a quota without a limit."""
    amounts = {
        ("cpu", 4_611_686_018_427_387_904): "unlimited",
        ("cpu", None): "unlimited",
        ("cpu", 1500): "1500m",
        ("cpu", 32_000): "32",
        ("memory", 14_000_000_065): "13Gi",
        ("memory", 8 << 30): "8Gi",
        ("memory", 1_500): "1.5Ki",
        ("memory", 0): "0",
        ("memory", -(1 << 20)): "-1Mi",
        ("kubernetes.io/batch-memory", 3 << 29): "1.5Gi",
        ("hugepages-2Mi", 1 << 21): "2Mi",
        ("nvidia.com/gpu", 4): "4",
        ("kubernetes.io/batch-cpu", 14_000): "14000",
    }
    assert {key: human_amount(*key) for key in amounts} == amounts
    assert human_amounts({"memory": 1 << 30, "cpu": 500}) == "cpu 500m, memory 1Gi"
    assert human_amounts({}) == "nothing"
