"""What commands do with scores that the benchmark does not measure."""
