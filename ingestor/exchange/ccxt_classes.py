"""Classes of ccxt, each loaded when it is needed.

A package of ccxt loads all of its exchanges, more than a hundred, of which an ingestor uses one or two: 0.4 s of its
start and 50 MB. So the packages are entered here without running their own code, which then runs only if an attribute
is missing. Import ccxt from here only.
"""

import pkgutil
import sys
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any

__all__ = ["errors", "exchange_class", "exchange_ids"]

_REST, _STREAMING = "ccxt.async_support", "ccxt.pro"


def exchange_ids(*, streaming: bool = False) -> list[str]:
    """The ids of the exchanges of ccxt, or of those that ccxt.pro streams."""
    package = sys.modules[_STREAMING if streaming else _REST]
    return [found.name for found in pkgutil.iter_modules(package.__path__) if not found.ispkg]


def exchange_class(ccxt_id: str, *, streaming: bool = False) -> type[Any]:
    if streaming:
        # Its base class.
        exchange_class(ccxt_id)
    package = _STREAMING if streaming else _REST
    import_module(f"{package}.{ccxt_id}")
    _name_classes(package)
    found: type[Any] = getattr(sys.modules[package], ccxt_id)
    return found


def _name_classes(package: str) -> None:
    """Let names in the package be classes, as after its own code, where an import leaves modules."""
    for name in exchange_ids(streaming=package == _STREAMING):
        if (module := sys.modules.get(f"{package}.{name}")) is not None:
            setattr(sys.modules[package], name, getattr(module, name))


def _enter(name: str) -> None:
    """Enter a package in `sys.modules` without running its code, unless it is there."""
    if name in sys.modules:
        return
    spec = find_spec(name)
    assert spec is not None
    assert spec.loader is not None
    package, loader = module_from_spec(spec), spec.loader

    def complete(attribute: str) -> Any:
        vars(package).pop("__getattr__", None)
        loader.exec_module(package)
        return getattr(package, attribute)

    vars(package)["__getattr__"] = complete
    sys.modules[name] = package
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, package)


for _package in ("ccxt", _REST, _STREAMING):
    _enter(_package)

errors: ModuleType = import_module("ccxt.base.errors")
# ccxt's websockets take these from the package itself.
vars(sys.modules["ccxt"]).update({name: kind for name, kind in vars(errors).items() if isinstance(kind, type)})
vars(sys.modules["ccxt"])["Exchange"] = import_module("ccxt.base.exchange").Exchange
