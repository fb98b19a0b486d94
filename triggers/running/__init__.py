"""The triggers of a partition at work: which share a stream, which rows they are fed, and their state."""
