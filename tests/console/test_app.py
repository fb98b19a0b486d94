"""The handling of every call: places, tokens, rates, headers, problems, and the files of the console."""

from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from console.access import Rates
from console.services import Services
from core.doors import KeyFolder, Role
from core.settings import Settings
from iceberg import create_tables, open_catalog
from tests.console.calls import calling, settings_in


def is_problem(answer: httpx.Response, status: int, kind: str) -> bool:
    body = answer.json()
    return (
        answer.status_code == status == body["status"]
        and answer.headers["content-type"] == "application/problem+json"
        and body["type"] == f"urn:candlewright:problem:{kind}"
        and bool(body["detail"])
    )


async def test_the_document_lists_the_calls(tmp_path: Path) -> None:
    async with calling(settings_in(tmp_path)) as http:
        answer = await http.get("/api/v1/openapi.json")
        assert answer.json()["openapi"].startswith("3.1")
        assert "/api/v1/status" in answer.json()["paths"]
        assert (await http.get("/api/v1/status")).json()["role"] == "operator"


@pytest.mark.parametrize(
    "path", ["/api", "/api/v1", "/api/v1/", "/api/v2/status", "/api/v1/nothing", "/api/v1/status/"]
)
async def test_an_unknown_call_is_a_problem(tmp_path: Path, path: str) -> None:
    async with calling(settings_in(tmp_path)) as http:
        assert is_problem(await http.get(path), 404, "no_such_call")


async def test_unknown_parameters_and_methods_are_refused(tmp_path: Path) -> None:
    async with calling(settings_in(tmp_path)) as http:
        assert is_problem(await http.get("/api/v1/status?x=1"), 400, "invalid_request")
        refused = await http.post("/api/v1/status")
        assert (refused.status_code, set(refused.headers["allow"].split(", "))) == (405, {"GET", "HEAD"})
        refused = await http.options("/api/v1/triggers/plan")
        assert (refused.status_code, refused.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "192.168.0.7:8090", ""])
async def test_a_foreign_host_is_refused_on_loopback(tmp_path: Path, host: str) -> None:
    async with calling(settings_in(tmp_path), Host=host) as http:
        assert is_problem(await http.get("/api/v1/status"), 421, "unknown_host")
        assert (await http.get("/")).status_code == 421


@pytest.mark.parametrize("host", ["localhost:8090", "LOCALHOST", "127.0.0.1:9", "[::1]:8090", "desk.example"])
async def test_own_hosts_are_served(tmp_path: Path, host: str) -> None:
    async with calling(settings_in(tmp_path, hosts=["desk.example"]), Host=host) as http:
        assert (await http.get("/api/v1/status")).status_code == 200


@pytest.mark.parametrize(
    ("origin", "is_served"),
    [
        ("http://127.0.0.1:8090", True),
        ("https://desk.example", True),
        ("http://evil.example", False),
        ("http://127.0.0.1:8091", False),
        ("null", False),
        ("http://[", False),
        ("http://[::g]:8090", False),
    ],
)
async def test_pages_of_other_sites_are_refused(tmp_path: Path, origin: str, is_served: bool) -> None:
    async with calling(settings_in(tmp_path, origins=["https://desk.example"]), Origin=origin) as http:
        answer = await http.get("/api/v1/status")
        assert (answer.status_code == 200) is is_served
        assert is_served or is_problem(answer, 403, "foreign_origin")


async def test_elsewhere_a_token_is_needed_and_has_a_role(tmp_path: Path) -> None:
    settings, folder = settings_in(tmp_path, bind="0.0.0.0:8090"), KeyFolder(tmp_path)
    viewer = folder.new_token("ann", Role.viewer)
    async with calling(settings, "http://10.0.0.5:8090") as http:
        refused = await http.get("/api/v1/status")
        assert is_problem(refused, 401, "unauthorised")
        assert refused.headers["www-authenticate"].startswith("Bearer")
        for wrong in ("cw_wrong", viewer + "x", "", "é"):
            headers = {"Authorization": b"Bearer " + wrong.encode()}
            assert (await http.get("/api/v1/status", headers=headers)).status_code == 401
        found = await http.get("/api/v1/status", headers={"Authorization": f"Bearer {viewer}"})
        assert found.json()["role"] == "viewer"
        assert (await http.get("/api/v1/openapi.json")).status_code == 200


@pytest.mark.processes
async def test_a_browsers_session_is_a_cookie_that_no_script_reads_and_no_other_site_sends(tmp_path: Path) -> None:
    settings, folder = settings_in(tmp_path, bind="0.0.0.0:8090"), KeyFolder(tmp_path)
    viewer = folder.new_token("ann", Role.viewer)
    home = "http://10.0.0.5:8090"
    async with calling(settings, home) as http:
        assert is_problem(await http.post("/api/v1/session", json={"token": "cw_wrong"}), 401, "unauthorised")
        assert not http.cookies
        signed = await http.post("/api/v1/session", json={"token": viewer}, headers={"Origin": home})
        (name, _, rest) = signed.headers["set-cookie"].partition("=")
        assert signed.status_code == 204 and name == "candlewright_session"
        assert {each.strip() for each in rest.split(";")[1:]} == {"HttpOnly", "Path=/api/v1", "SameSite=strict"}
        found = (await http.get("/api/v1/status")).json()
        assert (found["role"], found["signed_in_as"]) == ("viewer", "ann")
        check = {"sql": "close >", "tickers": ["BTC/USDT.BINANCE"]}
        assert is_problem(await http.post("/api/v1/triggers/check", json=check), 403, "foreign_origin")
        checked = await http.post("/api/v1/triggers/check", json=check, headers={"Origin": home})
        assert checked.status_code == 400
        add = await http.post("/api/v1/triggers", json=check, headers={"Origin": home})
        assert is_problem(add, 403, "not_allowed")
        left = await http.delete("/api/v1/session", headers={"Origin": home})
        assert left.status_code == 204 and not http.cookies
        assert is_problem(await http.get("/api/v1/status"), 401, "unauthorised")


async def test_a_session_behind_a_tls_proxy_is_sent_over_tls_only(tmp_path: Path) -> None:
    settings = settings_in(tmp_path, hosts=["desk.example"], origins=["https://desk.example"])
    token = KeyFolder(tmp_path).new_token("ann", Role.operator)
    async with calling(settings, Host="desk.example", Origin="https://desk.example") as http:
        answer = await http.post("/api/v1/session", json={"token": token})
        assert answer.headers["set-cookie"].endswith("; Secure")


async def test_destinations_of_alerts_are_listed_without_their_secrets(tmp_path: Path) -> None:
    destinations = {"phone": {"url": "ntfy://secret-topic"}, "bot": {"url": "https://bot.example.com/secret"}}
    async with calling(Settings.model_validate({"data_dir": tmp_path, "alerts": destinations})) as http:
        found = (await http.get("/api/v1/alerts")).json()["destinations"]
    assert found == [{"name": "bot", "service": "https"}, {"name": "phone", "service": "ntfy"}]


async def test_a_cookie_of_another_platform_does_not_lock_a_browser_out_of_loopback(tmp_path: Path) -> None:
    async with calling(settings_in(tmp_path), Cookie="candlewright_session=cw_other") as http:
        found = (await http.get("/api/v1/status")).json()
        assert (found["role"], found["signed_in_as"]) == ("operator", None)


def test_a_client_above_its_rate_waits_and_others_do_not() -> None:
    rates = Rates(2.0)
    assert [rates.wait_seconds("a", 0.0) for _ in range(20)] == [0.0] * 20
    assert rates.wait_seconds("a", 0.0) == 0.5
    assert rates.wait_seconds("b", 0.0) == 0.0
    assert rates.wait_seconds("a", 0.6) == 0.0


async def test_too_many_calls_are_refused_with_the_time_to_wait(tmp_path: Path) -> None:
    async with calling(settings_in(tmp_path, requests_per_second=0.2)) as http:
        answers = [await http.get("/api/v1/openapi.json") for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        assert is_problem(answers[-1], 429, "too_many_calls")
        assert int(answers[-1].headers["retry-after"]) >= 1


async def test_every_answer_has_security_headers(tmp_path: Path) -> None:
    async with calling(settings_in(tmp_path)) as http:
        for path in ("/", "/chart", "/api/v1/status", "/api/v1/nothing"):
            headers = (await http.get(path)).headers
            policy = headers["content-security-policy"]
            assert "default-src 'self'" in policy and "unsafe-inline" not in policy
            assert "frame-ancestors 'none'" in policy
            assert headers["x-content-type-options"] == "nosniff"


async def test_the_bundle_is_served_with_its_page_for_every_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dist = tmp_path / "dist"
    (dist / "assets").mkdir(parents=True)
    monkeypatch.setattr("console.web.DIST", dist)
    async with calling(settings_in(tmp_path)) as http:
        assert "./run build" in (await http.get("/chart")).text
        (dist / "index.html").write_text("<p>the page</p>")
        (dist / "assets" / "app-1a2b.js").write_text("go()")
        for path in ("/", "/chart?ticker=BTC/USDT.BINANCE", "/triggers"):
            page = await http.get(path)
            assert (page.text, page.headers["cache-control"]) == ("<p>the page</p>", "no-cache")
        script = await http.get("/assets/app-1a2b.js")
        assert script.text == "go()" and "immutable" in script.headers["cache-control"]
        again = await http.get("/assets/app-1a2b.js", headers={"If-None-Match": script.headers["etag"]})
        assert again.status_code == 304
        for path in ("/assets/other.js", "/%2e%2e/%2e%2e/etc/passwd.txt"):
            assert (await http.get(path)).status_code == 404
        assert (await http.post("/chart")).status_code == 405


@pytest.mark.parametrize(("accepted", "used"), [("gzip", "gzip"), ("gzip, zstd", "zstd"), ("identity", None)])
async def test_long_answers_are_compressed_as_the_caller_can_read(
    tmp_path: Path, accepted: str, used: str | None
) -> None:
    async with calling(settings_in(tmp_path), **{"Accept-Encoding": accepted}) as http:
        answer = await http.get("/api/v1/openapi.json")
        assert answer.headers.get("content-encoding") == used
        assert (await http.get("/api/v1/nothing")).headers.get("content-encoding") is None
        assert answer.json()["openapi"] == "3.1.0"


@pytest.mark.processes
async def test_a_viewer_reads_and_changes_nothing(tmp_path: Path) -> None:
    token = KeyFolder(tmp_path).new_token("ann", Role.viewer)
    calls = (
        ("POST", "/history", {"ticker": "BTC/USDT.BINANCE", "start": "2024-01-01", "end": "2024-01-02"}),
        ("DELETE", "/history/one", None),
        ("POST", "/triggers", {"sql": "price > 1"}),
        ("DELETE", "/triggers/one", None),
    )
    async with calling(settings_in(tmp_path), Authorization=f"Bearer {token}") as http:
        for method, path, body in calls:
            refused = await http.request(method, f"/api/v1{path}", json=body)
            assert is_problem(refused, 403, "not_allowed"), path
            assert "viewer" in refused.json()["detail"] and "operator" in refused.json()["detail"]
        checked = await http.post("/api/v1/triggers/check", json={"sql": "price > 1"})
        assert checked.status_code == 200
        plan = await http.post("/api/v1/triggers/plan", json={"sql": "price > 1", "tickers": ["BTC/USDT.BINANCE"]})
        assert plan.status_code == 200
        assert plan.json()["steps"][0]["text"] == "price > 1" and "found no tables in" in plan.json()["note"]
        head = await http.head("/api/v1/stream?topic=TICKS:BTC/USDT.BINANCE")
        assert (head.status_code, head.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")


@pytest.mark.processes
async def test_the_plan_of_a_trigger_says_how_many_triggers_a_view_is_computed_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "SELECT ticker, ts, price, EMA(price, 9) OVER (PARTITION BY ticker ORDER BY ts) AS mean FROM ticks"
    trigger = SimpleNamespace(
        sql="SELECT price FROM smooth WHERE price > mean", tickers=("BTC/USDT.BINANCE",), parameters={},
        views=("smooth",),
    )  # fmt: skip

    async def get(trigger_id: str) -> SimpleNamespace:
        assert trigger_id == "above"
        return trigger

    async def show(name: str) -> SimpleNamespace:
        assert name == "smooth"
        return SimpleNamespace(sql=text, trigger_count=3)

    async def client(_: Services) -> SimpleNamespace:
        return SimpleNamespace(triggers=SimpleNamespace(get=get), views=SimpleNamespace(show=show))

    monkeypatch.setattr(Services, "client", client)
    async with calling(settings_in(tmp_path)) as http:
        plan = await http.get("/api/v1/triggers/above/plan")
    assert "view smooth: the steps so far run once for all triggers that read it, 3 now" in [
        step["text"] for step in plan.json()["steps"]
    ]


@pytest.mark.processes
async def test_check_and_plan_read_registered_views(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rising = SimpleNamespace(name="rising", sql="CREATE VIEW rising AS SELECT ticker, ts, price AS p FROM ticks")
    asked: list[str] = []

    async def views() -> list[SimpleNamespace]:
        asked.append("views")
        return [rising]

    async def client(_: Services) -> SimpleNamespace:
        return SimpleNamespace(views=SimpleNamespace(list=views))

    monkeypatch.setattr(Services, "client", client)
    settings = settings_in(tmp_path)
    async with calling(settings) as http:
        text = {"sql": "SELECT p FROM rising WHERE p > 1"}
        checked = await http.post("/api/v1/triggers/check", json=text)
        assert checked.json()["columns"] == [{"name": "p", "type": "DOUBLE"}]
        plan = await http.post("/api/v1/triggers/plan", json=text)
        assert plan.status_code == 200
        bad = await http.post("/api/v1/triggers/check", json={"sql": "SELECT q FROM rising"})
        assert is_problem(bad, 400, "invalid_sql") and "unknown column 'q'" in bad.json()["detail"]
        assert len(asked) == 3
        create_tables(open_catalog(settings))
        queried = await http.post("/api/v1/sql", json={"sql": "SELECT p FROM rising"})
        assert queried.status_code == 200, queried.text
        assert queried.json()["rows"] == [] and queried.json()["columns"] == [{"name": "p", "type": "double"}]
        assert len(asked) == 4
        assert (await http.post("/api/v1/sql", json={"sql": "SELECT nosuch FROM ohlc"})).status_code == 400
        asked.pop()
        # For a text without a name that may be a view's, the relay is not queried.
        for sql in ("price > 1", "SELECT nosuch FROM ticks", "close >"):
            await http.post("/api/v1/triggers/check", json={"sql": sql})
        assert len(asked) == 3
