"""Arrays over nodes and indexes of pods, derived from the State: they can be built anew from it at any time."""
