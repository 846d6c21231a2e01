"""Charts of lessons: what a learner guessed, and what was measured."""
