"""Placement policies: one file each, plain functions over integers, and the catalogue that names them.

Whoever writes a policy needs only what is exported here. Turning a request into a call of a policy, and the
answer into a placement or a refusal, lives in ``koala.policies.interface``.
"""

from koala.policies.catalogue import Catalogue, Form, Policy, policy
from koala.policies.errors import (
    MissingFileError,
    PolicyError,
    PolicyFileError,
    UnknownPolicyError,
    UnknownSiteError,
)

__all__ = [
    "Catalogue",
    "Form",
    "MissingFileError",
    "Policy",
    "PolicyError",
    "PolicyFileError",
    "UnknownPolicyError",
    "UnknownSiteError",
    "policy",
]
