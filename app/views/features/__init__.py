"""What the Features page shows."""
