"""The parts' metrics on one page, each sample with a `part` label."""

import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from core import metrics

TIMEOUT_SECONDS = 3.0

RESTARTS = metrics.Counter(
    "candlewright_supervisor_restarts_total", "Parts started again", ["name"], registry=metrics.REGISTRY
)
RESIDENT = metrics.Gauge(
    "candlewright_supervisor_resident_bytes", "Memory of a part with its children", ["name"], registry=metrics.REGISTRY
)
OPEN_FILES = metrics.Gauge(
    "candlewright_supervisor_open_files", "Open files of a part with its children", ["name"], registry=metrics.REGISTRY
)


def fetch(ports: Mapping[str, int]) -> dict[str, str]:
    """The metrics page of each part that answers, requested concurrently."""
    if not ports:
        return {}
    with ThreadPoolExecutor(max_workers=min(16, len(ports))) as pool:
        pages = pool.map(_page, ports.values())
        return {part: page for part, page in zip(ports, pages, strict=True) if page is not None}


def merge(pages: Mapping[str, str]) -> bytes:
    """One Prometheus page from several; an invalid page is omitted."""
    families: dict[str, Metric] = {}
    for part, page in pages.items():
        try:
            _add(families, part, text_string_to_metric_families(page))
        except ValueError:
            continue
    registry = CollectorRegistry()
    registry.register(_Fixed(families))
    return generate_latest(registry)


def _add(families: dict[str, Metric], part: str, page: Iterable[Metric]) -> None:
    for family in page:
        known = families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
        for sample in family.samples:
            labels = {**sample.labels, "part": part}
            known.add_sample(sample.name, labels, sample.value, sample.timestamp, sample.exemplar)


def _page(port: int) -> str | None:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=TIMEOUT_SECONDS) as answer:
            text: str = answer.read().decode()
    except (OSError, ValueError):
        return None
    return text


class _Fixed(Collector):
    def __init__(self, families: Mapping[str, Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        yield from self._families.values()
