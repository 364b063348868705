"""ImageLocality: prefers nodes that already have the images of a pod."""
