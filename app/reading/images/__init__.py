"""The images of the session's benchmark, and which images they are."""
