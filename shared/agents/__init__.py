"""What node agents and ingest say to each other: names of subjects, reports, actions, NodeSLO. Neither side's code, so both import it."""
