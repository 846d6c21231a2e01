"""What papers state and print: combinations with their parameters, ablations, accuracies."""
