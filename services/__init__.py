"""One package per deployable service; none imports another."""
