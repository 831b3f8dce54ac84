"""Storms of faults over the scheduler, and the named promises that it keeps in them."""
