"""The HTTP ports of the leading scheduler: kube-scheduler's extender protocol and the views of nodes and pods."""
