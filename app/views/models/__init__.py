"""What Models & runs shows of models and data."""
