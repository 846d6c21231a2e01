"""The modules that an adapt put on top of a merged model: running, writing and loading them."""
