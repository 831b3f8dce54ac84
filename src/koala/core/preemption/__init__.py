"""Low-priority jobs make room for a high-priority one that finds no places: who, how many, and how it is done."""
