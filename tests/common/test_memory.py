import resource
import sys

import pytest

from hanme.common.memory import in_mb, peak_mb


def test_units(monkeypatch: pytest.MonkeyPatch) -> None:
    for platform, mb in (("linux", 3 * 1024), ("darwin", 3)):
        monkeypatch.setattr(sys, "platform", platform)
        assert in_mb(3 * 2**20) == mb


def test_the_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    used = resource.struct_rusage((0.0, 0.0, 5 * 1024, *[0] * 13))
    monkeypatch.setattr(resource, "getrusage", lambda who: used)
    assert peak_mb() == 5
    monkeypatch.setitem(sys.modules, "resource", None)  # as on Windows
    assert peak_mb() == 0
