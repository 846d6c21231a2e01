"""Edits: task vectors in, task vectors out. One file each."""
