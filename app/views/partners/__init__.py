"""What the Partners page shows."""
