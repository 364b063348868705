"""Enforcers: apply decisions of the strategies to cgroups and block devices, and restore original values at the end."""
