"""SchedulingHint: restricts and orders the nodes of a pod by its scheduling hint annotation."""
