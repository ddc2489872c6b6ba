"""A report of judgements as one file of HTML."""
