"""Which step of a lesson a visitor is on, what was done and said there, and how the address says so."""
