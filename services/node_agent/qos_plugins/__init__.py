"""QoS plugins of other distributions: settings for pods without annotations, and strategies of their own."""
