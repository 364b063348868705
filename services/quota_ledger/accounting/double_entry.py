"""Double-entry accounting: every event as postings that sum to zero, and the balances of all accounts.

A tree has two books. *Supply*: the capacity that each quota holds (`supply`, `hold:QUOTA`; a runtime moves capacity
from the parent's account to the child's). *Consumption*: requests and use of pods (`pending:QUOTA`, `usedP:QUOTA`, and
`usedN:QUOTA` for pods that must not be preempted, against `pods`).

Source: spec/quota.md 7.2.
"""

from collections.abc import Iterable, Mapping

from shared.domain.amounts import Amounts, negated

SUPPLY, CONSUMPTION = "supply", "consumption"

PODS = "pods"
"""Account on the other side of all requests. One for all pods: the pod's entry holds its request already."""

Account = tuple[str, str, str]
"""(tree, book, name)."""


Posting = tuple[Account, Mapping[str, int]]
"""One line: an account, and the amounts added to it."""


class Balances:
    """Balances of all accounts.

    Attributes:
        by_account: account -> resource -> balance. An account at zero in every resource is absent.
    """

    def __init__(self) -> None:
        self.by_account: dict[Account, Amounts] = {}

    def post(self, batch: Iterable[Posting]) -> None:
        """Adds a batch."""
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

    def add(self, tree: str, resource: str, sums: Mapping[str, int]) -> None:
        """Adds amounts of one resource to the capacity that quotas hold, quota -> amount: the postings of a
        RuntimeRecomputed, without an object for each.
        """
        balances = self.by_account
        for quota, size in sums.items():
            if not size:
                continue
            account = (tree, SUPPLY, hold_account(quota))
            balance = balances.get(account)
            if balance is None:
                balances[account] = {resource: size}
            elif after := balance.get(resource, 0) + size:
                balance[resource] = after
            else:
                del balance[resource]
                if not balance:
                    del balances[account]

    def balance(self, tree: str, book: str, name: str) -> Amounts:
        """Returns the balance of one account."""
        return self.by_account.get((tree, book, name), {})

    def imbalances(self) -> dict[tuple[str, str, str], int]:
        """Returns (tree, book, resource) -> the difference between debits and credits; empty when they balance."""
        sums: dict[tuple[str, str, str], int] = {}
        for (tree, book, _), balance in self.by_account.items():
            for resource, size in balance.items():
                key = (tree, book, resource)
                sums[key] = sums.get(key, 0) + size
        return {key: size for key, size in sums.items() if size}


def imbalances_of(batch: Iterable[Posting]) -> dict[tuple[str, str, str], int]:
    """Returns the differences between debits and credits within one batch."""
    own = Balances()
    own.post(batch)
    return own.imbalances()


def transfer(tree: str, book: str, source: str, target: str, amounts: Mapping[str, int]) -> list[Posting]:
    """Returns the two postings from one account to another of the same book."""
    return [((tree, book, source), negated(amounts)), ((tree, book, target), amounts)]


def hold_account(quota: str) -> str:
    """Returns the account of the capacity that a quota holds."""
    return f"hold:{quota}"


def pending_account(quota: str) -> str:
    """Returns the account of the requests of a quota's waiting pods."""
    return f"pending:{quota}"


def used_account(quota: str, *, preemptible: bool) -> str:
    """Returns the account of the use of a quota's pods."""
    return f"usedP:{quota}" if preemptible else f"usedN:{quota}"
