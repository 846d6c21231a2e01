"""The page of one run, and the picture with which Home begins."""
