"""Output for people and for programs."""
