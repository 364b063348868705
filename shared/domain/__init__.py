"""What Koordinator's labels, annotations and resource names mean: pure functions on the kept objects."""
