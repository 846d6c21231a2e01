"""What scripts and notebooks get from ``import mergescope``, beyond the public names of ``merging``."""

DEFINED_IN: dict[str, str] = {}  # public names -> the modules that define them
