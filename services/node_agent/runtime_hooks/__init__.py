"""The values of koordlet's runtime hooks for pods and containers; here the QoS manager reconciles them. Pure."""
