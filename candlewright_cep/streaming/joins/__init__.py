"""Joins by time: which rows of the branches meet, and how long each waits."""
