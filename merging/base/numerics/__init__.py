"""Pure tensor mathematics: no slot, no checkpoint, no file."""
