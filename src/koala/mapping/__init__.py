"""Mapping applications of communicating tasks onto a wide-area grid: the WASE heuristics and what goes beyond them.

First the tasks that communicate most are clustered, then the clusters are mapped onto machines. Plain types and
algorithms without I/O; text is read in ``koala.descriptions``. Names are imported from the modules themselves.
"""
