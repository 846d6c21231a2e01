"""Models of one's own: found in folders, looked into, put together as sets and checked; small ones from uploads."""
