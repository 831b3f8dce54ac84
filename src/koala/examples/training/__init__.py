"""Programs that train a small model with torch over several clusters, as jobs of type ``torchrun``; they need the
extra ``torch``."""
