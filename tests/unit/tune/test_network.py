"""Networks as they were tuned: out as they went in, refused where the text was edited, times that stay."""

import json
import sqlite3
from dataclasses import replace

import pytest

from tilewright.support import ArtefactError
from tilewright.tune import Database, Link, Network, Step
from tilewright.tune.network import network_from_json

STEPS = (
    Step("a/b/1", "conv", "Conv", ("n",), 2.0, "direct", ("x", "y"), ("plain",), ("NCHW16c",), "f", "s = 1"),
    Step("", "loop", "Loop"),
)
NETWORK = Network("<net>", STEPS, (Link(0, 1, "x", "NCHW16c"),), "a machine", 3e-3, 2e-3)


def test_a_network_comes_out_as_it_went_in():
    assert network_from_json(NETWORK.to_json()) == NETWORK
    assert STEPS[0].layouts == "plain -> NCHW16c" and STEPS[1].layouts == "- -> -"


def test_its_key_is_of_what_stays():
    planned = replace(STEPS[0], algorithm="winograd", schedule="s = 2", writes=("plain",))
    assert replace(NETWORK, steps=(planned, STEPS[1]), best=1.0, machine="").key == NETWORK.key
    assert replace(NETWORK, steps=(replace(STEPS[0], task="c"), STEPS[1])).key != NETWORK.key
    assert replace(NETWORK, links=()).key != NETWORK.key


@pytest.mark.parametrize(
    "edit",
    [
        lambda data: data.update(steps="all"),
        lambda data: data.update(untuned="soon"),
        lambda data: data["links"][0].update(reader=2),
        lambda data: data["links"][0].update(source=1),
        lambda data: data["links"][0].update(source=-1),
        lambda data: data["steps"][0].pop("task"),
    ],
)
def test_edited_networks_are_refused(edit, tmp_path):
    data = json.loads(NETWORK.to_json())
    edit(data)
    with pytest.raises(ArtefactError, match="a network in a database of tuning"):
        network_from_json(json.dumps(data))
    with Database(tmp_path / "r.db") as found:
        found._connection.execute("INSERT INTO networks VALUES ('k', ?)", (json.dumps(data),))
        with pytest.raises(ArtefactError, match="a network in a database of tuning"):
            found.networks()


def test_longer_texts_than_any_model_has_are_not_read():
    with pytest.raises(ArtefactError, match="at most"):
        network_from_json(" " * ((1 << 26) + 1))


def test_measured_times_stay_until_the_whole_is_compared_again(tmp_path):
    with Database(tmp_path / "r.db") as found:
        found.keep_network(NETWORK, compared=True)
        later = replace(NETWORK, untuned=9.0, best=9.0, steps=(replace(STEPS[0], func="g"), STEPS[1]))
        found.keep_network(later, compared=False)
        (kept,) = found.networks()
        assert (kept.untuned, kept.best, kept.steps[0].func) == (3e-3, 2e-3, "g")
        found.keep_network(later, compared=True)
        assert found.networks() == (later,)
        found.keep_network(replace(NETWORK, name="other"), compared=False)
        assert [each.name for each in found.networks()] == ["<net>", "other"]


def test_files_from_before_have_none_and_take_one(tmp_path):
    path = tmp_path / "r.db"
    Database(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE networks")
    connection.close()
    with Database(path, read_only=True) as found:
        assert found.networks() == ()
    with Database(path) as found:
        found.keep_network(NETWORK, compared=True)
        assert found.networks() == (NETWORK,)
