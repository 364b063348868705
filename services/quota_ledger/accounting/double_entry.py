"""The double-entry books: every event as postings that sum to zero, and what they add up to.

Two books a tree. *Supply*: who holds capacity (`supply`, `hold:QUOTA`; granting moves it from the parent's to the child's). *Consumption*: who asks for and
uses it (`pending:QUOTA`, `usedP:QUOTA`, `usedN:QUOTA` for pods that must not be preempted, against `pod:UID`).

Source: spec/quota.md 7.2.
"""

from collections.abc import Iterable, Mapping

from shared.domain.amounts import Amounts, negated

SUPPLY, CONSUMPTION = "supply", "consumption"

Account = tuple[str, str, str]
"""(tree, book, name)."""


Posting = tuple[Account, Mapping[str, int]]
"""One line: an account and what is added to it."""


class Balances:
    """Balances of all accounts.

    Attributes:
        balances: account -> resource -> balance. An account at zero in everything is absent.
    """

    def __init__(self) -> None:
        self.by_account: dict[Account, Amounts] = {}

    def post(self, batch: Iterable[Posting]) -> None:
        """Add a batch."""
        balances = self.by_account
        for account, amounts in batch:
            balance = balances.get(account)
            if balance is None:
                balance = balances[account] = {}
            for resource, size in amounts.items():
                if after := balance.get(resource, 0) + size:
                    balance[resource] = after
                else:
                    balance.pop(resource, None)
            if not balance:
                del balances[account]

    def balance(self, tree: str, book: str, name: str) -> Amounts:
        """One account's."""
        return self.by_account.get((tree, book, name), {})

    def imbalances(self) -> dict[tuple[str, str, str], int]:
        """(tree, book, resource) -> by how much debits and credits differ; empty when they balance."""
        sums: dict[tuple[str, str, str], int] = {}
        for (tree, book, _), balance in self.by_account.items():
            for resource, size in balance.items():
                key = (tree, book, resource)
                sums[key] = sums.get(key, 0) + size
        return {key: size for key, size in sums.items() if size}


def imbalances_of(batch: Iterable[Posting]) -> dict[tuple[str, str, str], int]:
    """Where one batch does not sum to zero."""
    own = Balances()
    own.post(batch)
    return own.imbalances()


def transfer(tree: str, book: str, source: str, target: str, amounts: Mapping[str, int]) -> list[Posting]:
    """From one account to another of the same book."""
    return [((tree, book, source), negated(amounts)), ((tree, book, target), amounts)]


def hold_account(quota: str) -> str:
    """Account of the capacity that a quota holds."""
    return f"hold:{quota}"


def pending_account(quota: str) -> str:
    """Account of what a quota's waiting pods ask for."""
    return f"pending:{quota}"


def used_account(quota: str, *, preemptible: bool) -> str:
    """Account of what a quota's pods use."""
    return f"usedP:{quota}" if preemptible else f"usedN:{quota}"


def pod_account(uid: str) -> str:
    """The other side of what a pod asks for or uses."""
    return f"pod:{uid}"
