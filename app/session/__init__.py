"""The state of one visitor: address, drafts, benchmark, and the queue as this session sees it."""
