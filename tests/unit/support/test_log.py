import logging

import pytest

from tilewright.support import configure_logging, get_logger


@pytest.fixture(autouse=True)
def restored_logger():
    logger = logging.getLogger("tilewright")
    before = logger.handlers[:], logger.level, logger.propagate
    yield
    logger.handlers[:], logger.level, logger.propagate = before


def test_messages_go_to_stderr_once_and_only_from_the_level_on(capsys):
    configure_logging("INFO")
    configure_logging("WARNING")
    get_logger("tilewright.tune").info("quiet")
    get_logger("tilewright.tune").warning("loud")
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("loud") == 1
    assert "quiet" not in err


def test_loggers_are_below_the_package():
    assert get_logger("__main__").name == "tilewright.__main__"
    assert get_logger("tilewright.ir").name == "tilewright.ir"


def test_a_library_is_silent_until_asked(capsys):
    get_logger("tilewright.tune").info("nothing")
    assert capsys.readouterr().err == ""
