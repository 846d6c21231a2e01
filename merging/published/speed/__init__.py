"""How fast this machine was before, for the next plan."""
