"""Whether a shared catalog holds data of real exchanges or of the sandbox. All platforms that use it must agree."""

from pyiceberg.catalog import Catalog

from core.catalog_conf import NAMESPACE
from core.origin import Origin, check_same
from iceberg.append import catalog_errors

_PROPERTY = "candlewright.origin"


def settle_origin(catalog: Catalog, origin: Origin) -> None:
    """Record `origin` in the namespace if it has none; raises ConfigurationError if it has the other origin."""
    with catalog_errors(f"{NAMESPACE} (namespace)"):
        if _PROPERTY not in catalog.load_namespace_properties(NAMESPACE):
            catalog.update_namespace_properties(NAMESPACE, updates={_PROPERTY: origin.value})
        known = catalog.load_namespace_properties(NAMESPACE)[_PROPERTY]
    check_same(f"namespace {NAMESPACE} of the catalog", known, origin, way_out="use another iceberg.uri")
