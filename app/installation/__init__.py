"""What an installation says of itself, for its pages and commands alike: schedule, limits, models in use, health."""
