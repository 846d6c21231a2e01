"""What papers state and print, beside what is stored here."""
