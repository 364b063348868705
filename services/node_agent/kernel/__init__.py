"""Writers of node settings outside of cgroups: sysctls, resctrl, OOM scores, core scheduling, traffic control, kidled."""
