"""Spark itself: its configuration, Java, the JVM and session, Python workers, and the code that executors get."""
