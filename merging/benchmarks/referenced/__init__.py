"""Images that stay in the files of a data set and are decoded when they are needed."""
