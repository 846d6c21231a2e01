"""Facts of ours that are held against a paper's: differences of two values with intervals, and the verdict."""
