"""The table of pods stores what pods have in common once."""

from services.quota_ledger.pods.observed_pod import ObservedPod
from services.quota_ledger.pods.pod_table import PodTable


def test_pods_that_started_in_the_same_second_share_its_number() -> None:
    table = PodTable()
    for number, start in enumerate((1_780_000_000.0, float("1780000000"), 1_780_000_001.0, float("1780000001"), 0.0)):
        table.observe(f"uid-{number}", f"shop/p-{number}", ObservedPod("shop", "", {"cpu": 100}), start, number)
    starts = [entry.started_s for entry in table.entries.values()]
    assert starts == [1_780_000_000.0, 1_780_000_000.0, 1_780_000_001.0, 1_780_000_001.0, 0.0]
    assert starts[0] is starts[1]
    assert starts[2] is starts[3]
