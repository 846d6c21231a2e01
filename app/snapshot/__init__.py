"""Snapshots: lessons and views of the app as static pages, which need no server. Run ``python -m app.snapshot``."""
