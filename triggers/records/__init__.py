"""Records of the bus as rows for triggers: decoded, in event order, with the time they bring."""
