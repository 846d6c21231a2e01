"""Reading files of unknown origin with care, and writing our own whole or not at all."""
