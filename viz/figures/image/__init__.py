"""Charts of one image in several models, depth by depth."""
