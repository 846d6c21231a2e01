"""The parts of reading a lesson: fields with their errors, steps, and texts that may be shown."""
