"""Compact uids."""

from uuid import UUID

from hypothesis import example, given
from hypothesis import strategies as st

from shared.kube.compact_uid import compact_uid, uid_text


@given(
    st.one_of(st.uuids().map(str), st.text(alphabet="0123456789abcdefABCDEF-_+ ٣", min_size=34, max_size=38), st.text())
)
@example("00000000-0000-0000-0000-000000000001")
@example("0000000000000000-0000-0000-0000-0001")
@example("-0000000-0000-0000-0000-000000000001")
@example("0_000000-0000-0000-0000-000000000001")
@example("ABCDEFAB-0000-0000-0000-000000000001")
def test_a_uid_survives_the_conversion(text: str) -> None:
    assert uid_text(compact_uid(text)) == text


@given(st.uuids())
def test_a_uuid_is_an_integer(uid: UUID) -> None:
    assert compact_uid(str(uid)) == uid.int
