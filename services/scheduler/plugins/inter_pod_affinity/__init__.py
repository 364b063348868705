"""InterPodAffinity: affinity and anti-affinity between pods, by the domains of a topology key."""
