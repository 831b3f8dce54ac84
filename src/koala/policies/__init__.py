"""Placement policies: one file each, plain functions over integers, and the catalogue that names them.

The author of a policy needs only what is exported here. ``koala.policies.interface`` turns a request into a call of a
policy, and the answer into a placement or a refusal.
"""

from koala.policies.catalogue import Catalogue, Form, Policy, order, policy
from koala.policies.errors import (
    MissingFileError,
    PolicyError,
    PolicyFileError,
    UnknownPolicyError,
    UnknownSiteError,
)
from koala.policies.orders.order import JobOrder, UserJobs, WaitingJob

__all__ = [
    "Catalogue",
    "Form",
    "JobOrder",
    "MissingFileError",
    "Policy",
    "PolicyError",
    "PolicyFileError",
    "UnknownPolicyError",
    "UnknownSiteError",
    "UserJobs",
    "WaitingJob",
    "order",
    "policy",
]
