"""Commands about what is on the bus: requests, deliveries, keep rules, dead letters."""
