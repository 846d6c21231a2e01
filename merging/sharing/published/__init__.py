"""Papers' experiments on published models: the catalogue, plans, rows, and comparisons of accuracies."""
