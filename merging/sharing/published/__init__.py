"""Papers' experiments on published models: the catalogue, what they cost, their rows, and what ours say of theirs."""
