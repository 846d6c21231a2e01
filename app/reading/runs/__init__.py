"""What pages read of runs: their names, imported scores, and the numbers of the map of the network."""
