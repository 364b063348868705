"""Which pods a cycle tries, in which order, and which refused pods an event makes worth trying again."""
