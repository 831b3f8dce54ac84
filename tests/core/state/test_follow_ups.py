"""The work of a turn: kinds in their order, each subject once, and no more of a bounded kind than fits."""

from __future__ import annotations

from functools import partial

from koala.core.state.follow_ups import FollowUps, Work


def recording(kinds: tuple[Work, ...]) -> tuple[FollowUps, list[tuple[Work, object, object]]]:
    follow_ups, done = FollowUps(), list[tuple[Work, object, object]]()

    def note(kind: Work, subject: object, detail: object) -> None:
        done.append((kind, subject, detail))

    for kind in kinds:
        follow_ups.on(kind, partial(note, kind))
    return follow_ups, done


def test_kinds_come_in_their_order_and_subjects_as_they_were_added() -> None:
    follow_ups, done = recording((Work.JOIN_RUN, Work.LEAVE_SITE))
    follow_ups.add(Work.LEAVE_SITE, 2)
    follow_ups.add(Work.LEAVE_SITE, 1)
    follow_ups.add(Work.JOIN_RUN, 7)
    follow_ups.take_up()
    assert done == [(Work.JOIN_RUN, 7, None), (Work.LEAVE_SITE, 2, None), (Work.LEAVE_SITE, 1, None)]
    assert not follow_ups.left


def test_a_subject_comes_once_with_the_last_detail_that_was_given() -> None:
    follow_ups, done = recording((Work.JOIN_RUN,))
    follow_ups.add(Work.JOIN_RUN, 7)
    follow_ups.add(Work.JOIN_RUN, 7, "too late")
    follow_ups.add(Work.JOIN_RUN, 7)
    follow_ups.take_up()
    assert done == [(Work.JOIN_RUN, 7, "too late")]


def test_what_follows_from_work_is_taken_up_before_the_kinds_behind_it() -> None:
    follow_ups, done = recording((Work.UNFOLD, Work.REVIEW_SITES))
    follow_ups.on(Work.CLAIM, lambda *_: follow_ups.add(Work.UNFOLD, 1))
    follow_ups.add(Work.REVIEW_SITES)
    follow_ups.add(Work.CLAIM)
    follow_ups.take_up()
    assert [kind for kind, *_ in done] == [Work.UNFOLD, Work.REVIEW_SITES]


def test_of_a_bounded_kind_what_does_not_fit_is_left_for_the_next_turn() -> None:
    follow_ups, done = recording((Work.LEAVE_SITE,))
    cancelled: list[str] = []

    def cancel(subject: str, _: None, most: int) -> int:
        cancelled.append(subject)
        follow_ups.drop(Work.CANCEL_ELEMENTS, subject)
        return min(2, most)

    follow_ups.on_bounded(Work.CANCEL_ELEMENTS, 3, cancel)
    for subject in "abc":
        follow_ups.add(Work.CANCEL_ELEMENTS, subject)
    follow_ups.add(Work.LEAVE_SITE, 1)
    follow_ups.take_up()
    assert cancelled == ["a", "b"]
    assert done == [(Work.LEAVE_SITE, 1, None)], "other kinds have their turn"
    assert list(follow_ups.of(Work.CANCEL_ELEMENTS)) == ["c"]
    follow_ups.take_up()
    assert not follow_ups.left


def test_only_kinds_from_one_on_can_be_taken_up() -> None:
    follow_ups, done = recording((Work.JOIN_RUN, Work.REVIEW_SITES))
    follow_ups.add(Work.JOIN_RUN, 7)
    follow_ups.add(Work.REVIEW_SITES)
    follow_ups.take_up(Work.REVIEW_SITES)
    assert done == [(Work.REVIEW_SITES, None, None)]
    assert list(follow_ups.left) == [Work.JOIN_RUN]
