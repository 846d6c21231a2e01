"""The engine's side of methods that learn: the network, its images and gradients, and the state to continue from."""
