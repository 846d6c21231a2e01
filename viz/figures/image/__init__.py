"""Charts of single images, and of whole data sets by depth."""
