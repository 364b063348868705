"""One scheduling cycle: from the cache and the queue to placements, nominations and refusals, recorded as events."""
