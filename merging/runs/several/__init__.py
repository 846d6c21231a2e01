"""Several runs that do not need each other: one after another here, or each whole on a worker."""
