"""The embedded site: processors of this machine, handed out as slots."""
