"""VolumeRestrictions: disks written by one node at a time, and claims used by one pod at a time."""
