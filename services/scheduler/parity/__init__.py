"""Runs the scheduler's own code on recorded inputs of upstream, for `koord parity`. Pure: inputs in, outputs out."""
