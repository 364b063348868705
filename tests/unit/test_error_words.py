"""The reason for which a server did not respond."""

import pytest

from shared.errors import fault_of


@pytest.mark.parametrize(
    ("error", "words"),
    [(TimeoutError(), "no response in time"), (OSError("refused"), "refused"), (EOFError(), "EOFError")],
)
def test_an_error_without_a_text_has_words(error: Exception, words: str) -> None:
    assert fault_of(error) == words
