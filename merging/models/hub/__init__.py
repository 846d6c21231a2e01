"""The Hub: facts about its repositories, and their files, fetched once, checked and stored in the Hub's own cache."""
