"""``koala experiment``, and what ``koala study`` shares with it."""
