"""The two bundled teams in the app: the switch on every page, the run in hand that it takes along, claims with both."""

from __future__ import annotations

from typing import Any

import pytest

from app.reading.papers import paper_facts
from app.session import benchmark_choice
from app.widgets import benchmark_badge, paper_line
from merging.base import settings
from merging.recipes.papers.claims import CLAIMS
from merging.study.paper_facts.comparison import Verdict, judge
from merging.study.runs.run_store import Store

GENTLE = settings.BUNDLED_TEAMS["gentle"]


def find_run(folder: Any, title: str) -> str:
    return next(run.id for run in Store(libraries=(folder / "runs",)).list_runs() if run.title == title)


def address_of(at: Any, key: str) -> str:
    """The value of a key in the address of the page; empty without one."""
    return "".join(at.query_params.get(key, ""))


def claim(key: str) -> Any:
    return next(one for one in CLAIMS if one.key == key)


@pytest.mark.full
def test_the_switch_takes_the_run_in_hand_along(open_app: Any) -> None:
    first = find_run(settings.BUNDLED_FOLDER, "TSV-Merge")
    at = open_app("masks", settings.BUNDLED_FOLDER, run=first[:8])
    switch = at.button_group(key=benchmark_badge.TEAM_KEY)
    assert switch.value == "default"
    switch.set_value("bundled:gentle").run()
    assert not at.exception and address_of(at, "benchmark") == "bundled:gentle"
    assert address_of(at, "run") == find_run(GENTLE, "TSV-Merge") != first
    at.button_group(key=benchmark_badge.TEAM_KEY).set_value("default").run()
    assert address_of(at, "run") == first and address_of(at, "benchmark") == ""


@pytest.mark.full
@pytest.mark.parametrize("key", ["bundled", "bundled:gentle"])
def test_a_link_to_a_team_opens_on_every_server(
    open_app: Any, library: Any, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    for folder in (settings.BUNDLED_FOLDER, GENTLE, library):
        at = open_app("methods", folder, benchmark=key)
        assert not at.exception and not at.warning
        server = "default" if folder == settings.BUNDLED_TEAMS[key.partition(":")[2]] else key
        assert at.session_state["team"] == server


@pytest.mark.full
def test_a_run_that_the_other_team_lacks_is_put_down(open_app: Any) -> None:
    learned = find_run(settings.BUNDLED_FOLDER, "Surgery Merging")
    at = open_app("scores", settings.BUNDLED_FOLDER, run=learned)
    at.button_group(key=benchmark_badge.TEAM_KEY).set_value("bundled:gentle").run()
    assert not at.exception and address_of(at, "run") != learned


def test_a_benchmark_of_ones_own_has_no_switch(open_app: Any, library: Any) -> None:
    at = open_app("masks", library)
    assert benchmark_badge.TEAM_KEY not in at.session_state


@pytest.mark.full
def test_a_claim_shows_both_teams_with_their_own_numbers(open_app: Any) -> None:
    open_app("home", settings.BUNDLED_FOLDER)
    one = claim("lwptv_ties")
    first = paper_facts.compare_claim(one)
    ((name, gentle),) = paper_facts.compare_on_other_teams(one)
    with benchmark_choice.use_folder(GENTLE):
        assert paper_facts.compare_claim(one) == gentle != first
        ((other_name, other),) = paper_facts.compare_on_other_teams(one)
    assert other == first and (name, other_name) == ("gentle team", "first team")
    (line,) = [each for each in paper_line.claims_in_words(one.views[0]).lines if each.line.count("●") == 2][:1]
    verdict = judge(one.direction, gentle)
    assert f"gentle team: {verdict}" in line.line.replace("\\", "") and verdict is not Verdict.NOT_MEASURED
    assert "Gentle team: " in line.sentence.replace("\\", "")


@pytest.mark.full
def test_a_claim_that_the_other_team_does_not_measure_says_so(open_app: Any) -> None:
    open_app("home", settings.BUNDLED_FOLDER)
    ((_, comparison),) = paper_facts.compare_on_other_teams(claim("lwptv_adamerging_layers"))
    assert comparison is None
    (line,) = [
        each
        for each in paper_line.claims_in_words(claim("lwptv_adamerging_layers").views[0]).lines
        if "a coefficient for each expert" in each.line
    ]
    assert line.line.count("●") == 1 and "● Gentle team: not measured." in line.sentence.replace("\\", "")


@pytest.mark.full
def test_the_readme_counts_the_claims_that_both_teams_measure(open_app: Any) -> None:
    open_app("home", settings.BUNDLED_FOLDER)
    verdicts = []
    for folder in settings.BUNDLED_TEAMS.values():
        with benchmark_choice.use_folder(folder):
            verdicts.append([judge(one.direction, paper_facts.compare_claim(one)) for one in CLAIMS])
    both = [pair for pair in zip(*verdicts, strict=True) if Verdict.NOT_MEASURED not in pair]
    same = [sum(verdict is Verdict.SAME for verdict in side) for side in zip(*both, strict=True)]
    turned = [gentle for first, gentle in both if first is Verdict.NOT_REPRODUCED and gentle is not first]
    readme = " ".join((settings.BUNDLED_FOLDER / "README.md").read_text("utf-8").split())
    assert f"Of {len(both)} claims of papers that the libraries of both teams measure" in readme
    assert f"the gentle team shows {same[1]} in the paper's direction and the first team {same[0]}." in readme
    assert [turned.count(one) for one in (Verdict.SAME, Verdict.OTHER)] == [4, 3]
