"""Adapts: a merged model and data in, a small module per task out. One file each."""
