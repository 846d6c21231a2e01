"""What workers are asked of a run and what they answer: whole tensors of its merge, and its evaluation."""
