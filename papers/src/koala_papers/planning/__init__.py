"""The study of plans over several clusters: how far ahead to plan."""
