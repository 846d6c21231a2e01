"""What the Sweeps page shows."""
