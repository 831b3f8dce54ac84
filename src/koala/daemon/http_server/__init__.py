"""The sockets for callers, the admission of their connections, and the HTTP server behind."""
