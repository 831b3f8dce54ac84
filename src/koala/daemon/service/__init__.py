"""All that callers may ask of the daemon, and who may ask it. The API and the dashboard stand on it."""
