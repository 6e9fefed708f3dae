"""What runs Whetstone: `up`'s supervisor and its children, the one ASGI process, the embedded broker, the data dir."""
