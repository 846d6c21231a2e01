"""What a chain would score on a sample of the choosing half, as differences to a reference, in seconds."""
