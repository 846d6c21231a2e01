"""Names of export targets. Importing this loads no torch."""

TARGETS = ("hf", "open_clip")  # the libraries that models are written for
PEFT = "peft"  # the merge as a LoRA adapter, for networks other than CLIP
NO_TEXT = "none"  # in place of a text tower's model: export the image tower alone
NO_TASK = "An adapter does not contain heads of tasks; use --to hf."
