"""The sites and policies that a caller knows.

A job which names another is refused by its reader, at the place of the name; here is what to say of it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from koala.descriptions.errors import shown
from koala.descriptions.yaml.problems import nearest


class Known(NamedTuple):
    """The names that a job may use; None where any will do. Policies are compared without regard to case."""

    sites: Collection[str] | None = None
    policies: Collection[str] | None = None

    def site_problem(self, name: str) -> tuple[str, str] | None:
        """What is wrong with the name of a site, and advice; None where nothing is."""
        if self.sites is None or name in self.sites:
            return None
        return f"there is no site {shown(name)}", nearest(name, list(self.sites))

    def policy_problem(self, name: str) -> tuple[str, str] | None:
        """What is wrong with the name of a policy, and advice; None where nothing is.

        Parameters behind the name are the catalogue's to read.
        """
        bare = name.partition("(")[0]
        if self.policies is None or bare.casefold() in {policy.casefold() for policy in self.policies}:
            return None
        return f"there is no policy {shown(bare)}", nearest(bare, list(self.policies))


ANY = Known()
