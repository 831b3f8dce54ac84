"""The verbs that start, stop and open the daemon: ``up``, ``down``, ``token``, ``dashboard``."""
