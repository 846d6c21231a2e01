"""The report that the visitor puts together, and how it is kept in the store."""
