"""Large objects of one tenant are recorded a few at a time, and those of others pass them."""

from services.gateway.effects.intent_types import ObjectRef
from services.gateway.kube_api.unused_field_removal import ObservedObject
from services.gateway.watch.pending_observation_batches import LARGE, LARGE_BYTES, MAX_BATCH, PendingObservations
from tests.support.pods import kept_pod

MEBIBYTE = 2**20
LARGE_PODS = 200


def observed(name: str, namespace: str, size: int) -> tuple[ObjectRef, ObservedObject]:
    pod = kept_pod(name, namespace=namespace, annotations={"koordinator.sh/note": "x" * size})
    return ObjectRef("pods", f"{namespace}/{name}"), ObservedObject(f"{namespace}/{name}", pod.metadata.uid, "1", pod)


def flooded() -> PendingObservations:
    pending = PendingObservations()
    for number in range(LARGE_PODS):
        pending.put(*observed(f"f{number}", "flood", MEBIBYTE))
    return pending


def test_a_pod_of_another_tenant_is_recorded_in_the_next_append_beside_few_large_ones() -> None:
    pending, takes = flooded(), 0
    found: list[str] = []
    while pending:
        name = f"p{takes}"
        pending.put(*observed(name, "other", 10))
        batch = pending.take()
        takes += 1
        assert f"other/{name}" in [ref.key for ref in batch]
        large = [ref.key for ref in batch if ref.key.startswith("flood/")]
        assert 1 <= len(large) <= LARGE_BYTES // MEBIBYTE
        found += large
    assert found == [f"flood/f{number}" for number in range(LARGE_PODS)]


def test_a_large_object_that_waits_is_replaced_by_its_newest_observation() -> None:
    pending = flooded()
    first = pending.take()
    changed, deleted = observed("f150", "flood", 10), observed("f151", "flood", 10)[0]
    assert changed[0] not in first
    pending.put(*changed)
    pending.put(deleted, None)
    assert len(set(pending)) == LARGE_PODS - len(first)
    second = pending.take()
    assert second[changed[0]] is changed[1]
    assert second[deleted] is None
    rest = [ref for _ in range(LARGE_PODS) for ref in pending.take()]
    assert changed[0] not in rest
    assert deleted not in rest
    assert not pending


def test_an_append_has_a_bounded_number_of_small_objects() -> None:
    pending = PendingObservations()
    for number in range(MAX_BATCH + 1):
        pending.put(*observed(f"p{number}", "ns", LARGE // 100))
    assert [len(pending.take()), len(pending.take())] == [MAX_BATCH, 1]
