"""What is put on top of a merged model: modules, routers, and what all of it takes to store."""
