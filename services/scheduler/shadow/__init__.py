"""Shadow mode: another scheduler's bindings compared with the placements that this scheduler would have chosen."""
