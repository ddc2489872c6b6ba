"""What each line of a submission costs."""
