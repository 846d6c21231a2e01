"""Merges: task vectors in, one merged task vector out. One file each."""
