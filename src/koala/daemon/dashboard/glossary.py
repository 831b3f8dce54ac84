"""The words of the pages that need an explanation, each in a sentence or two. The page ``/words`` lists all of
them."""

from __future__ import annotations

from koala.core.life.states import JobState
from koala.words.standing import MEANING

# A glossary term of the documentation, as a part of an address, and its meaning for readers of a page.
TERMS = {
    "array": "One submission that stands for many jobs, its elements, one for each index.",
    "barrier": "Where the components of a job wait for each other. It opens when all of them are there and all files "
    "have arrived; then the application starts on all sites together.",
    "claim": "One start of one component at its site: it takes its processors there, and waits at the barrier.",
    "component": "One piece of a job, which runs on one site. The components of a job are counted from 0.",
    "earmark": "Processors that are freed for one job, by ending work of lower priority, and that no other job gets.",
    "element": "One job of an array, named by the array and its index.",
    "fenced": "A component that a lost site may still have: it counts for nothing, and is ended before the site is "
    "used again.",
    "fixed-request": "Each component names its site. Else Koala chooses the sites (a non-fixed request), or divides "
    "a total into components as well (a flexible request).",
    "forecast": "What is expected of a link. Several simple rules predict it from its measurements, such as the last "
    "value or the median of the last five; the rule that was nearest so far counts.",
    "idle": "Processors of a site that Koala may take now.",
    "others": "Processors that are held by jobs from outside Koala.",
    "ours": "Processors that jobs of Koala hold.",
    "policy": "The rule by which Koala chooses sites: such as CF, close to the files, or WF, where most is idle.",
    "probe": "A short measurement of a link, or the one job that tries a site which lost its trust.",
    "processor-gained-time": "Processor time that a job left to others because it took its processors only shortly "
    "before it could start, and not when they were chosen.",
    "processor-wasted-time": "Processor time that a job held before it started: its components waited for each other "
    "or for files.",
    "quota": "The part of a site that may be in use before Koala takes no more of it; the rest is for others.",
    "region": "Sites that are near each other, as named in the grid file or by what was measured of their links. "
    "Jobs of communicating tasks are kept within a region, then within a wide area.",
}
STATE_MEANING = {str(state): MEANING[state] for state in JobState}
