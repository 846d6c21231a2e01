"""One way to compute: what a computation is handed down."""
