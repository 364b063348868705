"""The ledger's eviction requests without an outcome.

A request may wait for eviction budget at the gateway for minutes. Until its outcome its pod is not requested again.
"""


class OpenEvictions:
    """Requests from `quota`, ended by their outcomes in `cluster`, in whatever order the two are read.

    Attributes:
        requested: seq of a request -> uid of its pod.
        early: seqs of requests whose outcomes were read before them.
    """

    def __init__(self, requested: dict[int, str] | None = None, early: dict[int, None] | None = None) -> None:
        self.requested = requested or {}
        self.early = early or {}

    def request(self, seq: int, uid: str) -> None:
        """Adds a request, unless its outcome was read before."""
        if seq in self.early:
            del self.early[seq]
        else:
            self.requested[seq] = uid

    def end(self, seq: int, position: int) -> None:
        """Ends a request.

        Args:
            position: last seq that has been read of `quota`. A request up to there that is not open has ended before,
                or has left the log.
        """
        if seq > position:
            self.early[seq] = None
        else:
            self.requested.pop(seq, None)

    def begin(self, seq: int) -> None:
        """Forgets the outcomes of requests that have left the log: those up to a seq that still hold have been read."""
        self.early = {each: None for each in self.early if each > seq}

    def pods(self) -> frozenset[str]:
        """Returns the uids of the pods whose eviction is requested."""
        return frozenset(self.requested.values())
