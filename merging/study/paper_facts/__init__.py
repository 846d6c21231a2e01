"""Our results that are compared with a paper's: differences of two values with intervals, and the verdict."""
