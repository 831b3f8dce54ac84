"""The life of a job: one file a phase, the ways between them in ``states``, and the job itself in ``job``."""
