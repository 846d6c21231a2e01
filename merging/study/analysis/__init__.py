"""Tables about runs: stored measurements, and tables that a page computes when it is rendered."""
