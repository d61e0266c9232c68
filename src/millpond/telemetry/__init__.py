"""The only room that knows OpenTelemetry."""
