"""Kafka-Pixy's gRPC service over the platform's bus."""
