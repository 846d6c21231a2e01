"""What previews show, never drawn like the scores of a run."""
