"""What an adapt put on top of a merged model: running it, writing it to a folder, and loading it from there."""
