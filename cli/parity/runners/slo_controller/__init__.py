"""Runs the SLO controller on recorded cases of the domain `overcommit`, and the node's predictions on those of
`prediction`.
"""
