"""Which runs the visitor has chosen to look at: one choice for all pages."""
