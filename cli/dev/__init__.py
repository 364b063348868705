"""A real etcd and kube-apiserver on loopback, for the tests and for trying things by hand."""
