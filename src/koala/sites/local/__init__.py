"""The embedded site: processors of this machine as slots."""
