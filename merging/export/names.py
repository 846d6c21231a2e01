"""What exports are called. Importing this loads no torch."""

TARGETS = ("hf", "open_clip")  # the libraries that models are written for
