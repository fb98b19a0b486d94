"""External functions that speak Kapacitor's UDF protocol; the platform takes the daemon's role."""
