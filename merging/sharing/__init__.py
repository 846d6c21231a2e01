"""What goes to others and comes from them: exports, the user's own models and data, published experiments."""
