"""What the Conflicts page shows."""
