"""The foundation of the package: errors, settings, progress, devices, threads, files, numerics; it knows no models."""
