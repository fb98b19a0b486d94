import importlib
import importlib.util
import sys

import pytest

from core.absent import leave_out, left_out


def test_a_module_that_is_left_out_cannot_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.delitem(sys.modules, "antigravity", raising=False)
    leave_out("antigravity")
    with pytest.raises(ModuleNotFoundError, match="antigravity is left out"):
        importlib.import_module("antigravity")
    assert importlib.import_module("json")


def test_a_module_can_be_left_out_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "this", raising=False)
    before = [*sys.meta_path]
    with left_out("this"), pytest.raises(ModuleNotFoundError, match="this is left out"):
        importlib.import_module("this")
    assert sys.meta_path == before
