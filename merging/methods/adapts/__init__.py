"""The adapts, one per file: a small module per task on top of a merged model."""
