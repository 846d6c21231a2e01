"""What a checkpoint is: named tensors with roles under one naming, references to it, and its digest."""
