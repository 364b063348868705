"""Amounts as Kubernetes writes them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.kube.meta import Metadata
from shared.kube.pod import Container, Pod, PodSpec, ResourceRequirements
from shared.kube.quantity import NANO, nanos
from shared.kube.quantity_text import Notation, notation_of, quantity_text, request_notations


@pytest.mark.parametrize(
    ("given_text", "written"),
    [
        ("8Gi", "8Gi"), ("8192Mi", "8Gi"), ("1000Ki", "1000Ki"), ("512", "512"), ("0.5Ki", "512"), ("1023Mi", "1023Mi"),
        ("1500m", "1500m"), ("2000m", "2"), ("3000000000", "3G"), ("14000000065", "14000000065"), ("1e3", "1e3"),
        ("1E", "1E"), ("1Ei", "1Ei"), ("0Gi", "0"), ("100u", "100u"), ("1.5Gi", "1536Mi"), ("12e5", "1200e3"),
    ],
)  # fmt: skip
def test_a_quantity_is_written_canonically(given_text: str, written: str) -> None:
    assert quantity_text(nanos(given_text), notation_of(given_text)) == written


@given(st.integers(0, 2**62 * NANO), st.sampled_from(Notation))
def test_a_written_quantity_can_be_read(amount: int, notation: Notation) -> None:
    assert nanos(quantity_text(amount, notation)) == amount


def test_a_sum_has_the_notation_of_its_first_part_and_a_maximum_of_the_larger() -> None:
    def container(memory: str, policy: str | None = None) -> Container:
        return Container(resources=ResourceRequirements(requests={"memory": memory}), restart_policy=policy)

    def notation(*containers: Container, init: tuple[Container, ...] = ()) -> Notation:
        spec = PodSpec(containers=containers, init_containers=init)
        return request_notations(Pod(metadata=Metadata(), spec=spec))["memory"]

    assert notation(container("0"), container("1Gi"), container("1G")) is Notation.BINARY
    assert notation(container("1Gi"), init=(container("9G"),)) is Notation.DECIMAL
    assert notation(container("9Gi"), init=(container("1G"),)) is Notation.BINARY
