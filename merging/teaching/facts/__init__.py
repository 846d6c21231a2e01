"""The functions that compute the facts of the closed list, from stored tables only."""
