"""The command ``lessons`` and its actions."""
