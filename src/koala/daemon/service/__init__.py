"""All calls of the daemon's users, and the rights that they need. The API and the dashboard are built on it."""
