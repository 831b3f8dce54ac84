"""The life of a job: one file for each phase, the transitions in ``states``, and the job itself in ``job``."""
