"""The gateway's answers in the shape of recorded cases, for `koord parity`."""
