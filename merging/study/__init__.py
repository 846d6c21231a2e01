"""What is learned about merges: runs, scores, sweeps, previews, measurements and their tables."""
