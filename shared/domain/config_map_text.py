"""The configuration of a service in the data of its ConfigMap."""

from collections.abc import Mapping


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
    there = ", ".join(sorted(data)) or "none"
    return None, f"the service reads the key {key}, and there is {there}; write the configuration below that key"
