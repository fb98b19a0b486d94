"""External functions of Kapacitor's UDF protocol, run by us in the daemon's place."""
