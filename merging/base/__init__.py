"""What everything stands on: errors, settings, progress, devices, threads, files, numerics; no model is known here."""
