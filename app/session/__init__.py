"""What one visitor has chosen: address, drafts, benchmark, and the queue as this session sees it."""
