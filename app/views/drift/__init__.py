"""What the Drift page shows."""
