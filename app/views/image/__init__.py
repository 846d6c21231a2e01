"""The Image page: one image through several models, depth by depth."""
