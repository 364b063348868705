"""The life cycle of Reservations: their status, their expiry, and their garbage collection."""
