"""What the leading scheduler answers over HTTP: kube-scheduler's extender protocol, and the views of upstream's services engine."""
