"""A plain model of upstream's elastic quota, in which each of its quirks can be switched off."""
