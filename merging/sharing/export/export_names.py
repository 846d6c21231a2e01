"""What exports are called. Importing this loads no torch."""

TARGETS = ("hf", "open_clip")  # the libraries that models are written for
PEFT = "peft"  # the merge as a LoRA adapter, of networks other than CLIP
NO_TEXT = "none"  # in place of a model whose text tower is taken: the image tower alone
NO_TASK = "An adapter holds no head of a task; use --to hf."
