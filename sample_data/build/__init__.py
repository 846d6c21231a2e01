"""What makes the bundled benchmark: a miniature CLIP, eight fine-tuned experts, and the images they are measured on."""
