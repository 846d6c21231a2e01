"""Measurements of runs that learn: their models along the steps of learning, and their modules on other images."""
