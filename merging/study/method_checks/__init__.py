"""What every edit, merge and adapt must do, as checks that run on tiny models in seconds."""
