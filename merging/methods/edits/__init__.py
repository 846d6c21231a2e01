"""The edits, one per file: task vectors in, task vectors out."""
