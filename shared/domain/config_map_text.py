"""The configuration of a service in the data of its ConfigMap."""

from collections.abc import Mapping

from shared.first_names import first_names

NAMED = 5
"""Keys that are named in the place of one that is missing."""


def config_map_text(key: str, data: Mapping[str, object]) -> tuple[str | None, str]:
    """Returns the text below a key of a ConfigMap, and why there is none; one of the two is without a value.

    Args:
        key: the data key that the service reads. In a ConfigMap with a single key, that key counts whatever its name.
        data: of the ConfigMap.
    """
    if key in data:
        return str(data[key]), ""
    if len(data) == 1:
        return str(next(iter(data.values()))), ""
    there = first_names(sorted(data), NAMED) or "none"
    return None, f"the service reads the key {key}, and there is {there}; write the configuration below that key"
