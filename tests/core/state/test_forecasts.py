"""What the core believes of links: by direction, bounded, and as the grid file says where nothing was measured."""

from __future__ import annotations

import msgspec
import pytest

from koala.core.changes import Changes
from koala.core.state.network import forecasts as forecasts_module
from koala.core.state.network.forecasts import LinkForecasts, LinkSeries
from koala.core.state.network.predictors import MEASUREMENTS_MAX, MeasuredBy, Measurement
from koala.model.grid import Grid, Link, Links, PairLink, Site
from koala.policies.view import View

DECLARED = 1_000_000.0  # 8 Mbit/s


def some_forecasts(sites: int = 3) -> LinkForecasts:
    links = Links(
        default=Link(bandwidth_mbit_s=8.0, latency_s=0.01),
        pairs=(PairLink(between=("s0", "s1"), bandwidth_mbit_s=80.0, latency_s=0.5),),
    )
    names = [f"s{number}" for number in range(sites)]
    grid = Grid(sites=tuple(Site(name=name, processors=4) for name in names), links=links)
    return LinkForecasts(View.from_grid(grid), Changes())


def test_the_way_back_is_believed_to_be_alike_until_it_is_measured() -> None:
    found = some_forecasts()
    rows = found.view.bytes_per_s
    found.add_bandwidth(0, 2, Measurement(1.0, 500.0))
    assert (rows.at(0, 2), rows.at(2, 0), rows.at(1, 2)) == (500.0, 500.0, DECLARED)
    found.add_bandwidth(2, 0, Measurement(2.0, 700.0))
    found.add_bandwidth(0, 2, Measurement(3.0, 600.0))
    assert (rows.at(0, 2), rows.at(2, 0)) == (600.0, 700.0)
    assert rows.declared(0, 2) == rows.declared(2, 0) == DECLARED
    assert rows.declared(1, 0) == 10 * DECLARED


def test_latencies_are_believed_as_they_are_measured() -> None:
    found = some_forecasts()
    found.add_latency(1, 0, Measurement(1.0, 0.002))
    assert found.view.latency_s.at(0, 1) == found.view.latency_s.at(1, 0) == 0.002
    assert found.view.latency_s.at(0, 2) == 0.01


def test_slowness_goes_by_the_slower_direction() -> None:
    found = some_forecasts()
    found.add_bandwidth(0, 2, Measurement(1.0, DECLARED))
    found.add_bandwidth(2, 0, Measurement(1.0, DECLARED / 10))
    slowness = found.view.slowness
    assert slowness[0][2] == slowness[2][0] > slowness[1][2]


def test_an_overdue_transfer_never_makes_a_link_faster() -> None:
    found = some_forecasts()
    found.transferred(0, 2, at=9.0, size_bytes=10**9, took_s=10.0, arrived=False)
    assert found.view.bytes_per_s.at(0, 2) == DECLARED
    found.transferred(0, 2, at=99.0, size_bytes=10**6, took_s=100.0, arrived=False)
    assert found.view.bytes_per_s.at(0, 2) == pytest.approx(0.7 * DECLARED, rel=0.01)
    assert found.series[0, 2].bandwidth[-1].by is MeasuredBy.OVERDUE


@pytest.mark.parametrize(("size_bytes", "took_s"), [(8, 1.0), (8, 0.010001), (10**9, 0.02), (99_999, 50.0)])
@pytest.mark.parametrize("arrived", [True, False])
def test_a_transfer_that_is_all_setting_up_is_no_measurement(size_bytes: int, took_s: float, arrived: bool) -> None:
    found = some_forecasts()
    found.transferred(0, 2, at=9.0, size_bytes=size_bytes, took_s=took_s, arrived=arrived)
    assert found.view.bytes_per_s.at(0, 2) == DECLARED
    assert not found.series


def test_only_the_last_measurements_and_links_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecasts_module, "LINKS_MEASURED_MAX", 2)
    found = some_forecasts(4)
    for number in range(MEASUREMENTS_MAX + 5):
        found.add_bandwidth(0, 2, Measurement(float(number), 500.0))
    assert [each.at for each in found.series[0, 2].bandwidth][:1] == [5.0]
    assert len(found.series[0, 2].bandwidth) == MEASUREMENTS_MAX
    found.add_bandwidth(2, 0, Measurement(100.0, 400.0))
    found.add_bandwidth(1, 2, Measurement(101.0, 400.0))
    assert list(found.series) == [(2, 0), (1, 2)]
    assert found.view.bytes_per_s.at(0, 2) == 400.0, "as the way back"
    found.add_bandwidth(3, 2, Measurement(102.0, 400.0))
    assert found.view.bytes_per_s.at(0, 2) == found.view.bytes_per_s.at(2, 0) == DECLARED


def test_what_the_grid_file_says_otherwise_it_knows_better() -> None:
    series = LinkSeries(
        source=0,
        target=2,
        declared_bytes_per_s=DECLARED / 2,
        declared_latency_s=0.01,
        bandwidth=[Measurement(1.0, 500.0)],
        latency=[Measurement(1.0, 0.3)],
    )
    found = some_forecasts()
    found.put(msgspec.json.decode(msgspec.json.encode(series), type=LinkSeries))
    assert found.view.bytes_per_s.at(0, 2) == DECLARED
    assert found.view.latency_s.at(0, 2) == 0.3
    found.put(LinkSeries(source=1, target=2, declared_bytes_per_s=1.0, declared_latency_s=1.0))
    assert list(found.series) == [(0, 2)]
