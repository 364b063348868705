"""Reads of the log for people: the lag of followers, the newest events, followers and parked events, checks of the
server, verification of digests.
"""
