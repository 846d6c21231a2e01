"""From a file, a folder or the Hub to a checkpoint, and from tensors to safetensors."""
