"""A proxy in front of a container runtime that calls hooks before and after requests of the kubelet."""
