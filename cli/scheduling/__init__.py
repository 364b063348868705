"""Waiting pods, gangs and Reservations as the scheduler has them, from the log alone."""
