"""The engine's side of methods that learn: the network, its images, its gradients, and what is kept to go on later."""
