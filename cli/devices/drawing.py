"""Draws the devices of a node: a bar for each, in which each pod has a letter."""

from collections.abc import Iterator, Sequence

from cli.devices.listed_devices import PERCENT, Card, NodeDevices
from cli.terminal.output import table_lines
from shared.kube.device import GPU

CELLS = 20
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
FREE, BROKEN, MANY = "·", "x", "#"
_LEVELS = "·▁▂▃▄▅▆▇█"


def drawn(node: NodeDevices, *, wide: bool = False) -> Iterator[str]:
    """Yields a line for each device: its bar, and the pods with their shares.

    Args:
        wide: with the place and the UUID of each.
    """
    letters = _letters(node.cards)
    rows = []
    for card in node.cards:
        pods = ", ".join(f"{letters[each.pod]} {each.pod} {each.percent} %" for each in card.pods)
        state = "" if card.healthy else "unhealthy"
        place = (card.numa if card.numa >= 0 else "-", card.pcie or "-", card.id or "-") if wide else ()
        bar = f"|{_bar(card, letters)}|"
        rows.append(
            (f"{card.type} {card.minor}", bar, f"{card.percent} %", *place, ": ".join(filter(None, (state, pods))))
        )
    titles = ("device", "", "used", *(("numa", "pcie", "id") if wide else ()), "pods")
    yield from (line.rstrip() for line in table_lines(titles, rows, right=("used",)))


def small(node: NodeDevices) -> str:
    """Returns a sign for each GPU: how full it is, or that it is unhealthy."""
    return "".join(_sign(card) for card in node.cards if card.type == GPU)


def _sign(card: Card) -> str:
    if not card.healthy:
        return BROKEN
    eighths = -(-min(card.percent, PERCENT) * (len(_LEVELS) - 1) // PERCENT)
    return _LEVELS[eighths]


def _letters(cards: Sequence[Card]) -> dict[str, str]:
    names = dict.fromkeys(each.pod for card in cards for each in card.pods)
    return {name: LETTERS[number] if number < len(LETTERS) else MANY for number, name in enumerate(names)}


def _bar(card: Card, letters: dict[str, str]) -> str:
    """Fills the bar up to the sum of the shares, rounded, so that it is full where the device is."""
    cells, until = "", 0
    for each in card.pods:
        until += each.percent
        cells += letters[each.pod] * max(1, round(until * CELLS / PERCENT) - len(cells))
    return cells[:CELLS].ljust(CELLS, FREE if card.healthy else BROKEN)
