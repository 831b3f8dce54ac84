"""Storms of faults over the scheduler, and the named properties that it keeps in them."""
