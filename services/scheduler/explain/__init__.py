"""Why a pod is where it is, or why it waits: for koord why pod and for ScheduleExplanation objects."""
