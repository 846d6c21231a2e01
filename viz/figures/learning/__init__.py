"""What merges learn: coefficients, their losses, and masks."""
