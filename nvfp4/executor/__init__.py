"""The process that runs recorded launches on the true inputs."""
