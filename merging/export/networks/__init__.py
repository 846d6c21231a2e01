"""Exports of networks other than CLIP: weights, what lies beside them, and the heads that each task keeps."""
