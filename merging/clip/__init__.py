"""CLIP's networks: image encoder, text encoder, preprocessing, zero-shot heads and prompts."""
