"""A scalar model of upstream's Reservation plugin, with and without its quirks, from objects as JSON."""
