"""Boxes for results that a view lacks, buttons that compute them, and the tray of jobs."""
