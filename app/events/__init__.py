"""The stream: durable events are published after their commit and read from an id on."""

from app.events.broker import wake_streams as wake_streams
