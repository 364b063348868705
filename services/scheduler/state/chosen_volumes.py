"""The volumes that placements chose for claims, until the claim is written in the volume itself."""

from msgspec import Struct

from shared.events.intents import FieldsDesired


class ChosenVolume(Struct, frozen=True, array_like=True):
    """A volume and the claim that it was chosen for, both by name."""

    volume: str
    claim: str


def chosen_volume(event: FieldsDesired) -> ChosenVolume:
    """Returns the choice in a desired state of a volume."""
    reference = event.patch["spec"]["claimRef"]
    return ChosenVolume(event.name, f"{reference['namespace']}/{reference['name']}")
