"""The NodeSLO, the pods and the node objects in force, each kept in a file over restarts."""
