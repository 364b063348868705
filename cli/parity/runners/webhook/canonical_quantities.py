"""Quantities in the API's canonical text, as recorded outputs hold them."""

from shared.kube.quantity import nanos
from shared.kube.quantity_text import notation_of, quantity_text


def canonical(text: str) -> str:
    """Returns a quantity in the API's canonical text: `1000m` as `1`."""
    return quantity_text(nanos(text), notation_of(text))
