"""The command that gives runs scores from elsewhere."""
