"""From a recipe to a stored run: inputs, estimate, computation, store, reference models."""
