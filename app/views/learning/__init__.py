"""What merges that learn have learned, and how their modules route images."""
