"""Charts of what putting weights back to pretrained gives."""
