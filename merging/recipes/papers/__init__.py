"""Facts from papers: combinations with their parameters, ablations, claims, and printed accuracies."""
