"""Collectors of a node's usage: procfs, cgroups, sysfs, perf events and NVML."""
