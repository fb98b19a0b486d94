"""Commands about what is on the bus: requests, deliveries, standing orders, letters put aside."""
