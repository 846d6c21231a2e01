"""The functions behind the closed list of facts, one each, over stored tables only."""
