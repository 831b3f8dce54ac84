"""What callers may ask about sites and links: overviews, conditions, usage, and what operators do to them."""
