"""Lessons: their cards, and the rail beside the pages with its kinds of steps and the sheet to hand in."""
