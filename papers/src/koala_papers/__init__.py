"""The papers' experiments on the real scheduler, in the simulated world and on real batch systems.

``catalogue`` lists the experiments by name, each study has a folder, and ``command`` is ``koala experiment``.
``koala.study`` has what they share with any other study.
"""
