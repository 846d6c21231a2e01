"""Several measurements: one after another here, or those that do not consist of trials each on a worker."""
