"""Pieces that several charts share."""
