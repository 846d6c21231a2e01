"""The adapts, one per file: modules for tasks, or a router of images, on top of a merged model."""
