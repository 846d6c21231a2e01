"""Previews: within seconds, the scores of a chain on a sample of the choosing half, as differences from a reference."""
