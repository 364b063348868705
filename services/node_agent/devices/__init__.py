"""Devices of the node: found in sysfs, by NVIDIA's library and in files of the device daemon, and reported."""
