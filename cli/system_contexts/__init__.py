"""Named contexts: which system a command means, as kubectl's contexts name clusters."""
