"""What Models & runs shows of runs."""
