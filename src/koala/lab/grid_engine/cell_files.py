"""The contents of a Grid Engine cell's files. ``koala.lab.grid_engine.cell`` starts the cell from them."""

from __future__ import annotations

from pathlib import Path

from koala.lab import programs
from koala.lab.plan import LabPlan, SitePlan

PROGRAMS_DIRECTORY = Path("/usr/lib/gridengine")
QUEUE = "all.q"
PARALLEL_ENVIRONMENT = "mpi"
# The cell uses this name for its one host, whatever the machine's own name is: it needs no name server.
HOST = "localhost"
# The number of groups, which limits the jobs that can run at the same time.
GROUPS = 2_048


def root(site: SitePlan) -> Path:
    """Return the directory for SGE_ROOT."""
    return site.directory / "grid_engine"


def common(site: SitePlan) -> Path:
    """Return the directory in which clients look for the cell."""
    return root(site) / site.name / "common"


def spool(site: SitePlan) -> Path:
    """Return the directory of the cell's queues, hosts and jobs."""
    return root(site) / "spool"


def temporary(site: SitePlan) -> Path:
    """Return the place of jobs' temporary directories. Their names contain only job and queue, so they would collide
    with those of another cell on this machine in a common place."""
    return site.directory / "tmp"


def environment(site: SitePlan) -> dict[str, str]:
    """Return the environment for clients and daemons of the cell. PATH leads to the commands themselves: Debian's
    /usr/bin has a script in front of each, which starts a compiler to learn about the machine."""
    return {
        "PATH": f"{PROGRAMS_DIRECTORY}:{programs.search_path()}",
        "SGE_ROOT": str(root(site)),
        "SGE_CELL": site.name,
        "SGE_CLUSTER_NAME": site.name,
        "SGE_QMASTER_PORT": str(site.port),
        "SGE_EXECD_PORT": str(site.port + 1),
    }


def spooling_parameters(site: SitePlan) -> str:
    """Return the place of the plain files with the cell's state."""
    return f"{common(site)};{spool(site)}/qmaster"


def cell_files(site: SitePlan, plan: LabPlan) -> dict[str, str]:
    """Return the files of the directory ``common``, by name. They make this machine's name an alias of the host's."""
    return {
        "act_qmaster": f"{HOST}\n",
        "cluster_name": f"{site.name}\n",
        "host_aliases": f"{HOST} {plan.host}\n" if plan.host != HOST else "",
        "bootstrap": _rows(
            {
                "admin_user": plan.user,
                "default_domain": "none",
                "ignore_fqdn": "true",
                "spooling_method": "classic",
                "spooling_lib": "libspoolc",
                "spooling_params": spooling_parameters(site),
                "binary_path": f"{root(site)}/bin",
                "qmaster_spool_dir": f"{spool(site)}/qmaster",
                "security_mode": "none",
                "listener_threads": "2",
                "worker_threads": "2",
                "scheduler_threads": "1",
            }
        ),
    }


def configuration(site: SitePlan) -> str:
    """Return the cell's global configuration: jobs of any user, accounting within a second, a clean environment."""
    return _rows(
        {
            "execd_spool_dir": f"{spool(site)}/execd",
            "mailer": "/bin/true",
            "xterm": "/bin/false",
            "load_sensor": "none",
            "prolog": "none",
            "epilog": "none",
            "shell_start_mode": "unix_behavior",
            "login_shells": "bash,sh,ksh,csh,tcsh",
            "min_uid": "0",
            "min_gid": "0",
            "user_lists": "none",
            "xuser_lists": "none",
            "projects": "none",
            "xprojects": "none",
            "enforce_project": "false",
            "enforce_user": "auto",
            "load_report_time": "00:00:05",
            "max_unheard": "00:00:30",
            "reschedule_unknown": "00:00:00",
            "loglevel": "log_warning",
            "administrator_mail": "none",
            "qmaster_params": "none",
            "execd_params": "INHERIT_ENV=false",
            "reporting_params": "accounting=true reporting=false flush_time=00:00:01 joblog=false sharelog=00:00:00",
            "finished_jobs": "100",
            "gid_range": _group_range(site),
            "qlogin_command": "builtin",
            "qlogin_daemon": "builtin",
            "rlogin_command": "builtin",
            "rlogin_daemon": "builtin",
            "rsh_command": "builtin",
            "rsh_daemon": "builtin",
            "max_aj_instances": "2000",
            "max_aj_tasks": "75000",
            "max_u_jobs": "0",
            "max_jobs": "0",
            "delegated_file_staging": "false",
            "reprioritize": "0",
            "jsv_url": "none",
        }
    )


def host_entry() -> str:
    """Return the host as one that may administer and submit."""
    return _rows({"hostname": HOST})


def execution_host(site: SitePlan) -> str:
    """Return the host as one that runs jobs: at most as many at once as there are slots, in any queue."""
    empty = ("user_lists", "xuser_lists", "projects", "xprojects", "usage_scaling", "report_variables")
    return _rows(
        {
            "hostname": HOST,
            "load_scaling": "NONE",
            "complex_values": f"slots={site.processors}",
            **dict.fromkeys(empty, "NONE"),
        }
    )


def parallel_environment() -> str:
    """Return slots for parallel jobs, whose processes are under the cell's control."""
    return _rows(
        {
            "pe_name": PARALLEL_ENVIRONMENT,
            "slots": "9999",
            "user_lists": "NONE",
            "xuser_lists": "NONE",
            "start_proc_args": "NONE",
            "stop_proc_args": "NONE",
            "allocation_rule": "$fill_up",
            "control_slaves": "TRUE",
            "job_is_first_task": "FALSE",
            "urgency_slots": "min",
            "accounting_summary": "TRUE",
            "qsort_args": "NONE",
        }
    )


def queue(site: SitePlan) -> str:
    """Return the queue for all users. Neither the machine's load nor time limits keep a job from running."""
    limits = ("rt", "cpu", "fsize", "data", "stack", "core", "rss", "vmem")
    return _rows(
        {
            "qname": QUEUE,
            "hostlist": HOST,
            "seq_no": "0",
            "load_thresholds": "NONE",
            "suspend_thresholds": "NONE",
            "nsuspend": "1",
            "suspend_interval": "00:05:00",
            "priority": "0",
            "min_cpu_interval": "00:05:00",
            "processors": "UNDEFINED",
            "qtype": "BATCH INTERACTIVE",
            "ckpt_list": "NONE",
            "pe_list": PARALLEL_ENVIRONMENT,
            "rerun": "FALSE",
            "slots": str(site.processors),
            "tmpdir": str(temporary(site)),
            "shell": "/bin/sh",
            "prolog": "NONE",
            "epilog": "NONE",
            "shell_start_mode": "unix_behavior",
            "starter_method": "NONE",
            "suspend_method": "NONE",
            "resume_method": "NONE",
            "terminate_method": "NONE",
            "notify": "00:00:60",
            "owner_list": "NONE",
            "user_lists": "NONE",
            "xuser_lists": "NONE",
            "subordinate_list": "NONE",
            "complex_values": "NONE",
            "projects": "NONE",
            "xprojects": "NONE",
            "calendar": "NONE",
            "initial_state": "default",
            **{f"{bound}_{limit}": "INFINITY" for limit in limits for bound in ("s", "h")},
        }
    )


def scheduler() -> str:
    """Return the cell's scheduler: it runs every second and after every submission and end, and honours
    reservations."""
    return _rows(
        {
            "algorithm": "default",
            "schedule_interval": "0:0:1",
            "maxujobs": "0",
            "queue_sort_method": "load",
            "job_load_adjustments": "NONE",
            "load_adjustment_decay_time": "0:0:0",
            "load_formula": "np_load_avg",
            "schedd_job_info": "true",
            "flush_submit_sec": "1",
            "flush_finish_sec": "1",
            "params": "none",
            "reprioritize_interval": "0:0:0",
            "halftime": "168",
            "usage_weight_list": "cpu=1.000000,mem=0.000000,io=0.000000",
            "compensation_factor": "5.000000",
            "weight_user": "0.250000",
            "weight_project": "0.250000",
            "weight_department": "0.250000",
            "weight_job": "0.250000",
            "weight_tickets_functional": "0",
            "weight_tickets_share": "0",
            "share_override_tickets": "TRUE",
            "share_functional_shares": "TRUE",
            "max_functional_jobs_to_schedule": "200",
            "report_pjob_tickets": "TRUE",
            "max_pending_tasks_per_job": "50",
            "halflife_decay_list": "none",
            "policy_hierarchy": "OFS",
            "weight_ticket": "0.010000",
            "weight_waiting_time": "0.000000",
            "weight_deadline": "3600000.000000",
            "weight_urgency": "0.100000",
            "weight_priority": "1.000000",
            "max_reservation": "32",
            "default_duration": "INFINITY",
        }
    )


def _group_range(site: SitePlan) -> str:
    """Return the groups that mark the processes of the cell's jobs. Another cell on this machine must have others, or
    each would end jobs of the other; so they follow from its port."""
    first = 100_000 + site.port * GROUPS
    return f"{first}-{first + GROUPS - 1}"


def _rows(values: dict[str, str]) -> str:
    return "".join(f"{name} {value}\n" for name, value in values.items())
