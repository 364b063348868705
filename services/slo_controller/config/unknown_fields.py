"""Names in the ConfigMap slo-controller-config that nothing reads, and texts that count as the default. They set nothing,
so a typing error must be seen.
"""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from shared.admission.slo_config.document_validation import DOCUMENTS, Problem, decoded
from shared.admission.slo_config.strategy_words import DEFAULTED, unknown_words
from shared.closest_name import did_you_mean
from shared.unknown_fields import unknown_fields

_WITHOUT = "has no effect"


def unknown_documents(keys: Iterable[str]) -> Iterator[str]:
    """Yields a sentence about each key of the ConfigMap that is no document's; keys that begin with `_` are comments."""
    for key in keys:
        if key not in DOCUMENTS and not key.startswith("_"):
            yield f"key {key} {_WITHOUT}{did_you_mean(key, DOCUMENTS)}"


def unknown_parts(applied: str) -> Iterator[str]:
    """Yields a sentence about each unknown field.

    Args:
        applied: the text of a ConfigApplied: JSON, key -> text of its document.
    """
    yield from unknown_in(msgspec.json.decode(applied or "{}", type=dict[str, str]))


def unknown_in(texts: Mapping[str, str]) -> Iterator[str]:
    """Yields a sentence about each unknown field of these documents, and about each text that counts as the default; those
    that are no JSON are passed over.

    Args:
        texts: key -> text of its document.
    """
    for key, text in texts.items():
        try:
            document = msgspec.json.decode(text or "{}")
        except msgspec.DecodeError:
            continue
        for field in unknown_fields(DOCUMENTS.get(key), document) if key in DOCUMENTS else ():
            yield f"{key}: {field.path} {_WITHOUT}{field.meant}"
        typed = decoded(key, text) if key in DOCUMENTS and text else None
        if typed is not None and not isinstance(typed, Problem):
            for word in unknown_words(typed, DEFAULTED):
                yield f"{key}: {word.path} {word.found}, which {_WITHOUT}; {word.remedy}"
