"""What files of adapters say: their settings, and what they change of which tensor."""
