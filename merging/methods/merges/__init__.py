"""The merges, one per file: task vectors in, one merged task vector out."""
