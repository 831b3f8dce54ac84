"""How far to plan ahead over several clusters."""
