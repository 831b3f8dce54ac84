"""The papers' experiments on the real scheduler, in the simulated world and on real batch systems.

``catalogue`` knows the experiments by name, each study has a folder, and ``command`` is ``koala experiment``. What
they share with any other study is in ``koala.study``.
"""
