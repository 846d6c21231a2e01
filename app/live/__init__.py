"""What a browser needs to merge and run a small tower without a server."""
