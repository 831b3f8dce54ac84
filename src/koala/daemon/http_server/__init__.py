"""How callers come in: the sockets, who is let in there and how much each holds, and the server behind."""
