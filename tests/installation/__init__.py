"""What an installation says of itself."""
