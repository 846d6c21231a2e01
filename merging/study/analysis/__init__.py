"""Tables about runs: stored measurements, and what a page computes when it is drawn."""
