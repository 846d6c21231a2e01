"""What the Scores page shows."""
