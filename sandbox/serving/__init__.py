"""The sandbox as servers on loopback: REST, websockets and its control."""
