"""The pod-resources API of the kubelet, with the devices that our scheduler allocated."""
