"""RocketMQ's v1 service over the platform's bus."""
