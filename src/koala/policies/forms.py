"""What a policy is: its name, the form of its call, and the parameters that may stand behind its name.

``koala.policies.builtin`` lists Koala's own policies; ``koala.policies.catalogue`` finds a policy by its name.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable
from typing import Any, NamedTuple

ORIGIN_KOALA = "koala"


class Form(enum.StrEnum):
    """What a policy is called with; the lists it fills are its last arguments.

    - COMPONENTS ``(idle, sizes, left, chosen)``: as ``worst_fit``;
    - FILES ``(idle, sizes, transfer_s, left, chosen)``: as ``close_to_files``;
    - FLEXIBLE ``(idle, total, component_min, components_max, parts)``: as ``flexible_cluster_minimization``;
    - NETWORK ``(idle, sizes, slowness, combined, left, chosen)``: as ``network_cluster_minimization``;
    - FLEXIBLE_FILES ``(idle, total, component_min, components_max, fixed_s, per_processor_s, parts)``: as
      ``flexible_close_to_files``;
    - FLEXIBLE_NETWORK ``(idle, total, component_min, components_max, slowness, parts)``: as
      ``network_flexible_cluster_minimization``;
    - LINKS ``(idle, total, component_min, components_max, home, demand, capacity, per_processor_bit_s, parts)``: the
      home of the job (-1: none), the demand on every link and its capacity in bits per second, the sites' own links
      first, and the bandwidth of one of the job's processors. Ours are the modules of ``metaschedule``;
    - TASKS: jobs of tasks are mapped task by task, by ``koala.mapping``; other totals are divided as by FLEXIBLE.

    >>> from koala.policies import Form
    >>> Form("flexible").divides, Form.COMPONENTS.divides
    (True, False)
    """

    COMPONENTS = "components"
    FILES = "files"
    FLEXIBLE = "flexible"
    NETWORK = "network"
    FLEXIBLE_FILES = "flexible-files"
    FLEXIBLE_NETWORK = "flexible-network"
    LINKS = "links"
    TASKS = "tasks"

    @property
    def divides(self) -> bool:
        """True if a policy of this form divides totals; otherwise it places components of given sizes."""
        return self in _DIVIDING


_DIVIDING = frozenset({Form.FLEXIBLE, Form.FLEXIBLE_FILES, Form.FLEXIBLE_NETWORK, Form.LINKS, Form.TASKS})

PARAMETERS: dict[Form, tuple[str, ...]] = {
    Form.COMPONENTS: ("idle", "sizes", "left", "chosen"),
    Form.FILES: ("idle", "sizes", "transfer_s", "left", "chosen"),
    Form.FLEXIBLE: ("idle", "total", "component_min", "components_max", "parts"),
    Form.NETWORK: ("idle", "sizes", "slowness", "combined", "left", "chosen"),
    Form.FLEXIBLE_FILES: (
        "idle",
        "total",
        "component_min",
        "components_max",
        "fixed_s",
        "per_processor_s",
        "parts",
    ),
    Form.FLEXIBLE_NETWORK: ("idle", "total", "component_min", "components_max", "slowness", "parts"),
    Form.LINKS: (
        "idle",
        "total",
        "component_min",
        "components_max",
        "home",
        "demand",
        "capacity",
        "per_processor_bit_s",
        "parts",
    ),
    Form.TASKS: ("idle", "total", "component_min", "components_max", "parts"),
}


class ModuleChoice(NamedTuple):
    """A module of ``koala.policies.minigrid.meta_scheduling`` and its settings.

    ``threshold`` limits the use of links, as a multiple of their capacity; ``chunk`` is for B3.
    """

    module: int
    threshold: float = 1.0
    chunk: float = 0.85


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A setting of a policy that may stand in parentheses behind its name, such as ``B3(chunk=0.85)``.

    ``read`` returns the choice with the text applied, and the text in its usual form; None for an invalid value.
    """

    name: str
    default: str
    values: str
    read: Callable[[ModuleChoice, str], tuple[ModuleChoice, str] | None]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A named rule that chooses the places of a job's components.

    - ``origin``: "koala", the path of a user's file, or the name of an entry point;
    - ``checked``: the function is not ours, so every answer of it is verified;
    - ``components_policy``: for a policy that divides totals, the policy that places given sizes if there is nothing
      to divide, because the user fixed the component sizes or listed the allowed splits;
    - ``helpers``: functions that ``function`` calls, which a compiler must know too;
    - ``beside``: called in place of ``function`` if components of the job have fixed sites, with a mark for each of
      those sites before ``left``; None if these make no difference to the others;
    - ``most_idle_takes_whole``: a lone component without files, or a flexible total, goes to the site with the most
      idle processors (lowest index) whenever that site can hold it, so that calling the function is needless;
    - ``module``: the module of ``function``, for our policies of the form LINKS; ``parameters`` are the settings that
      may stand behind the name;
    - ``mapping``: the method by which it maps jobs of tasks, for our policies of the form TASKS.

    >>> from koala.policies import Catalogue
    >>> cluster_minimization = Catalogue.builtin().find("CM")
    >>> cluster_minimization.form, cluster_minimization.origin
    (<Form.COMPONENTS: 'components'>, 'koala')
    """

    name: str
    form: Form
    function: Callable[..., int]
    summary: str
    origin: str = ORIGIN_KOALA
    checked: bool = False
    components_policy: Policy | None = None
    helpers: tuple[Callable[..., Any], ...] = ()
    beside: Callable[..., int] | None = None
    most_idle_takes_whole: bool = False
    module: ModuleChoice | None = None
    parameters: tuple[Parameter, ...] = ()
    mapping: str = "wase"
