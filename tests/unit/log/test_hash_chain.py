"""The digest of a row, byte for byte."""

from hashlib import sha256

from hypothesis import given
from hypothesis import strategies as st

from shared.log.hash_chain import GENESIS, Chain


def test_a_row_in_full() -> None:
    chain = Chain("cluster", GENESIS, at_us=-1, actor="gateway@a/1")
    digest = chain.add(258, "koord.cluster.PodBound.v1", 1, "shop/é", None, "", b"{}")
    expected = (
        bytes(32)
        + b"\0\0\0\x07cluster"
        + b"\0\0\0\0\0\0\x01\x02"
        + b"\0\0\0\x19koord.cluster.PodBound.v1"
        + b"\0\x01"
        + b"\0\0\0\x07shop/\xc3\xa9"
        + b"\xff" * 8
        + b"\0\0\0\x0bgateway@a/1"
        + b"\xff\xff\xff\xff"
        + b"\0\0\0\0"
        + b"\0\0\0\x02{}"
    )
    assert digest == sha256(expected).digest()
    assert chain.digest == digest


texts = st.text(st.characters(codec="utf-8"), max_size=5)
rows = st.tuples(texts, texts, st.none() | texts, st.none() | texts, st.binary(max_size=5))


@given(rows, rows)
def test_rows_that_differ_anywhere_have_different_digests(
    one: tuple[str, str, str | None, str | None, bytes], other: tuple[str, str, str | None, str | None, bytes]
) -> None:
    def digest(row: tuple[str, str, str | None, str | None, bytes]) -> bytes:
        kind, key, cause, correlation, data = row
        return Chain("cluster", GENESIS, at_us=0, actor="").add(1, kind, 1, key, cause, correlation, data)

    assert (digest(one) == digest(other)) == (one == other)


def test_every_digest_covers_the_one_before() -> None:
    def chain(first: bytes) -> list[bytes]:
        made = Chain("cluster", GENESIS, at_us=0, actor="a")
        return [made.add(seq, "t", 1, "k", None, None, first if seq == 1 else b"{}") for seq in range(1, 5)]

    assert all(one != other for one, other in zip(chain(b"{}"), chain(b"[]"), strict=True))
