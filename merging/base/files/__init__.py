"""Checked reading of untrusted files, and writing of the program's own files whole or not at all."""
