"""The Hub: facts about its repositories, and their files, fetched once, checked and kept in its own cache."""
