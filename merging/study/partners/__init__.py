"""Which experts get along: what a chain does with every subset of a team, measured, and what follows from it."""
