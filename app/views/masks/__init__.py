"""What the Masks page shows."""
