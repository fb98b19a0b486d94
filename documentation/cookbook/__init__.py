"""The cookbook: recipes of docs/cookbook, run over recorded markets for their figures and pictures."""
