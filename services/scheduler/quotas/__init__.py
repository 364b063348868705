"""Elastic quota, as far as the scheduler has to do with it: who must be charged, who waits for room, and who was refused."""
