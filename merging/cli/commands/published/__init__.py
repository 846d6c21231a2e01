"""The command ``published`` and its actions."""
