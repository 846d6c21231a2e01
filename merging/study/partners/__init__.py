"""Which experts get along: what a chain does with every subset of a team, and what foretells it before a merge."""
