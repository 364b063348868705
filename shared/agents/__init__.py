"""What node agents and ingest say to each other: names of subjects, reports, deeds, NodeSLO. Neither side's code, so both import it."""
