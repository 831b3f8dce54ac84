"""``koala study``, and what it shares with the verbs of other distributions that run experiments."""
