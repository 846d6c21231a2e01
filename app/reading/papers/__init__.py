"""Claims and numbers of papers, compared with stored results."""
