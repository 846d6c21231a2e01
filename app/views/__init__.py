"""What pages show, a folder a topic."""
