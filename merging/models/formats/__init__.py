"""File formats: a checkpoint from a file, a folder or the Hub, and safetensors from tensors."""
