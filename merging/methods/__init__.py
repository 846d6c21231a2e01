"""The definition of a method, and every method."""
