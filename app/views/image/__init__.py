"""What the page Image shows."""
