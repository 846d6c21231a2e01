"""One image in several models, depth by depth: tables of answers, attention, drift, restoring, neighbors."""
