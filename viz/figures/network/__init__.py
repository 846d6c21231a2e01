"""Figures of the network itself."""
