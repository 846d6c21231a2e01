"""One run of an experiment: its files, its scores, how fast they came, and what is said where something is missing."""
