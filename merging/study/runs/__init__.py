"""From a recipe to a stored run: inputs, estimate, queue, computation, store, reference models."""
