"""What the Report page shows."""
