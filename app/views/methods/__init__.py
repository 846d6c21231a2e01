"""What the Methods page shows."""
