"""Enforcers: apply the strategies' decisions to cgroups and block devices, and restore the original values at the end."""
