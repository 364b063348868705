"""What the leading scheduler serves over HTTP: kube-scheduler's extender protocol and the views of a node."""
