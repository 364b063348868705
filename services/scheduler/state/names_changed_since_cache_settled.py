"""Names of objects that changed in the State, for a cache that has yet to read them."""


class DirtySet:
    """The names that changed since a cache last settled, each once, in order of the first change."""

    __slots__ = ("gangs", "metrics", "nodes", "objects", "pods")

    def __init__(self) -> None:
        self.nodes: dict[str, None] = {}
        self.objects: dict[tuple[str, str], None] = {}  # (resource, key)
        self.metrics: dict[str, None] = {}
        self.pods: dict[str, None] = {}
        self.gangs: dict[str, None] = {}
