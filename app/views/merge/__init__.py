"""What the Merge page shows."""
