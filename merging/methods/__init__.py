"""What a method is, and every method."""
