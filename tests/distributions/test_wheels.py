"""The wheels as a user gets them: in an empty environment, outside the tree."""

import base64
import hashlib
import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from email import message_from_string
from email.message import Message
from pathlib import Path

import pytest

from candlewright.version import VERSION
from tests.conftest import ROOT

NAMES = ("candlewright", "candlewright_cep", "candlewright_platform")
SCRIPT = """\
import candlewright as cw

with cw.connect() as c:
    history: cw.History = c.history("BTC/USDT.BINANCE", period="1m", start="2024-01-01", end="2024-01-01T02:00")
    print(history.row_count, history.to_arrow().num_rows)
    trigger = c.triggers.add("price > 0", tickers=["BTC/USDT.BINANCE"])
    for event in trigger.events(timeout=180):
        print(event.ticker)
        break
    trigger.remove()
"""

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]


def build(folder: Path) -> Path:
    command = [sys.executable, str(ROOT / "distributions" / "build.py"), str(folder)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return folder


def test_an_option_is_not_an_output_folder(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "distributions" / "build.py"), "--help"]
    done = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=60)
    assert b"its contents are replaced" in done.stdout
    assert not any(tmp_path.iterdir())


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("built") / "dist")


def wheel(dist: Path, name: str) -> Path:
    return dist / f"{name}-{VERSION}-py3-none-any.whl"


def tops(file: Path) -> set[str]:
    with zipfile.ZipFile(file) as archive:
        return {name.partition("/")[0] for name in archive.namelist() if ".dist-info/" not in name}


def about(file: Path) -> Message:
    with zipfile.ZipFile(file) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        return message_from_string(archive.read(name).decode())


def clean_environment(**variables: str) -> dict[str, str]:
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "CANDLEWRIGHT", "VIRTUAL"))
    }
    return kept | variables


def uv() -> str:
    return str(Path(sys.executable).with_name("uv"))


def index() -> dict[str, str]:
    return {"UV_DEFAULT_INDEX": os.environ["PIP_INDEX_URL"]} if os.environ.get("PIP_INDEX_URL") else {}


def environment(folder: Path, dist: Path, *wanted: str) -> Path:
    """The interpreter of an environment that contains only these packages and their dependencies."""
    subprocess.run([uv(), "venv", "-q", "--python", sys.executable, str(folder)], check=True, timeout=60)
    python = folder / "bin" / "python"
    install = [uv(), "pip", "install", "-q", "--python", str(python), "--find-links", str(dist), *wanted]
    subprocess.run(install, check=True, timeout=280, env=clean_environment(**index()))
    return python


def run(python: Path, *arguments: str, cwd: Path, check: bool = True) -> "subprocess.CompletedProcess[str]":
    command = [str(python), *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, cwd=cwd, env=clean_environment(), check=check
    )


@pytest.fixture(scope="module")
def client(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment(tmp_path_factory.mktemp("client") / "env", dist, str(wheel(dist, "candlewright")))


def test_two_builds_are_equal_byte_for_byte(dist: Path, tmp_path: Path) -> None:
    def digests(folder: Path) -> dict[str, str]:
        files = [file for file in folder.rglob("*") if file.is_file()]
        return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}

    assert len(digests(dist)) == 5
    assert digests(build(tmp_path / "again")) == digests(dist)


def test_each_package_is_in_one_wheel(dist: Path) -> None:
    own = {file.parent.name for file in ROOT.glob("*/__init__.py")} - {"benchmarks", "documentation", "tests"}
    found = [name for each in NAMES for name in tops(wheel(dist, each))]
    assert sorted(found) == sorted(own)
    assert tops(wheel(dist, "candlewright")) == {"candlewright"}
    assert tops(wheel(dist, "candlewright_cep")) == {"candlewright_cep"}


def test_the_row_patterns_need_spark_as_an_extra_alone(dist: Path) -> None:
    found = about(wheel(dist, "candlewright_cep"))
    assert sorted(found.get_all("Provides-Extra", [])) == ["calendars", "sketches", "spark"]
    always = {re.split(r"[<>=]", each)[0] for each in found.get_all("Requires-Dist", []) if "extra" not in each}
    assert always == {"numpy", "pyarrow", "tzdata"}


@pytest.mark.parametrize("name", NAMES)
def test_a_wheel_has_its_metadata(dist: Path, name: str) -> None:
    found = about(wheel(dist, name))
    assert (found["Version"], found["License-Expression"]) == (VERSION, "Apache-2.0")
    assert found.get_all("License-File") == ["LICENSE", "NOTICE"]
    urls = {each.partition(",")[0] for each in found.get_all("Project-URL", [])}
    assert urls == {"Changelog", "Documentation", "Homepage", "Issues"}
    assert not [each for each in found.get_all("Classifier", []) if each.startswith("License")]


def test_the_extras_of_the_client(dist: Path) -> None:
    extras = about(wheel(dist, "candlewright")).get_all("Provides-Extra")
    assert extras == ["mcp", "notebook", "pandas", "polars", "spark-connect"]


def test_the_platform_needs_its_own_version_of_the_other_two() -> None:
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert {each for each in needed if each.startswith("candlewright")} == {
        f"candlewright=={VERSION}",
        f"candlewright-cep=={VERSION}",
    }


def test_the_bill_of_materials_names_each_locked_package_with_its_hashes(dist: Path) -> None:
    bill = json.loads((dist / f"candlewright-{VERSION}.cdx.json").read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    lock = (ROOT / "requirements.lock").read_text()
    libraries = [each for each in bill["components"] if each["type"] == "library"]
    assert {"pyspark", "pyzmq", "redis", "ccxt", "sqlalchemy"} <= {each["name"] for each in libraries}
    assert not {"pytest", "mypy", "ruff"} & {each["name"] for each in libraries}
    browser = {each["name"]: each for each in libraries if each["purl"].startswith("pkg:npm/")}
    assert {"lightweight-charts", "preact", "@codemirror/view"} <= set(browser)
    packages = json.loads((ROOT / "console" / "web" / "package-lock.json").read_text())["packages"]
    for name, each in browser.items():
        digest = base64.b64encode(bytes.fromhex(each["hashes"][0]["content"])).decode()
        assert packages[f"node_modules/{name}"]["integrity"] == f"sha512-{digest}"
    for each in (each for each in libraries if each["name"] not in browser):
        assert re.search(rf"^{re.escape(each['name'])}=={re.escape(each['version'])}", lock, re.M | re.I), each["name"]
        assert all(digest["content"] in lock for digest in each["externalReferences"][0]["hashes"])


def test_the_platforms_wheel_carries_the_consoles_pages(dist: Path) -> None:
    with zipfile.ZipFile(wheel(dist, "candlewright_platform")) as archive:
        web = {name.removeprefix("console/web/") for name in archive.namelist() if name.startswith("console/web/")}
        page = archive.read("console/web/dist/index.html").decode()
    assert {"dist/index.html", "dist/licences.txt", "dist/icon.svg"} <= web
    assert {f"dist{name}" for name in re.findall(r'(?:src|href)="(/[^"]+)"', page)} <= web
    assert all(name.startswith("dist/") or name == "README.md" for name in web)


def test_the_clients_wheel_carries_the_chart_of_notebooks(dist: Path) -> None:
    with zipfile.ZipFile(wheel(dist, "candlewright")) as archive:
        script = archive.read("candlewright/client/live/chart.js").decode()
        licences = archive.read("candlewright/client/live/chart.licences.txt").decode()
    assert "lightweight-charts" in licences
    assert set(re.findall(r"https?://[^/\"'`]+", script)) <= {"http://www.w3.org", "https://www.tradingview.com"}


def test_the_notice_lists_the_locked_packages() -> None:
    made = subprocess.run(
        [sys.executable, "-c", "import inventory; print(inventory.notice(), end='')"],
        cwd=ROOT / "distributions",
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert (ROOT / "NOTICE").read_text() == made.stdout, "run: python distributions/inventory.py notice"


def test_the_image_installs_the_locked_packages_without_development_tools() -> None:
    command = [sys.executable, "distributions/inventory.py", "lock"]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True).stdout
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    assert all(line in lines for line in made.splitlines())
    names = {line.partition("==")[0] for line in made.splitlines() if "==" in line}
    assert {"pyspark", "pyiceberg", "ccxt", "redis", "starlette"} <= names
    assert not {"pytest", "mypy", "ruff", "hypothesis", "playwright"} & names


def test_a_script_of_a_user_is_typed(client: Path, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    command = ["-m", "mypy", "--strict", "--python-executable", str(client), "--cache-dir", str(tmp_path), "script.py"]
    found = run(Path(sys.executable), *command, cwd=tmp_path, check=False)
    assert found.stdout.startswith("Success"), found.stdout
    (tmp_path / "wrong.py").write_text(SCRIPT.replace("cw.History", "int"))
    found = run(Path(sys.executable), *command[:-1], "wrong.py", cwd=tmp_path, check=False)
    assert "Incompatible types in assignment" in found.stdout


def test_the_client_alone_is_small_and_starts_with_little(client: Path, tmp_path: Path) -> None:
    heavy = ("pyspark", "pyarrow", "pandas", "zmq", "numpy", "pydantic", "google.protobuf", "rich")
    code = f"import sys, candlewright; print([name for name in {heavy!r} if name in sys.modules])"
    assert run(client, "-c", code, cwd=tmp_path).stdout == "[]\n"
    site = client.parent.parent
    size = sum(file.stat().st_size for file in site.rglob("*") if file.is_file() and not file.is_symlink())
    assert size < 300_000_000


@pytest.mark.parametrize(
    "command",
    [("up", "--sandbox"), ("keys", "new", "a"), ("trigger", "try", "--sql", "x"), ("requests",), ("gaps", "x")],
)
def test_a_command_of_the_platform_names_it_where_it_is_not_installed(
    client: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    done = run(client, "-m", "candlewright", *command, cwd=tmp_path, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "candlewright-platform" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_trigger_language_works_alone(dist: Path, tmp_path: Path) -> None:
    python = environment(tmp_path / "env", dist, str(wheel(dist, "candlewright_cep")))
    code = """
import pyarrow as pa
from candlewright_cep import TriggerRejected, evaluate
ticks = pa.table({"ticker": ["A"] * 3, "price": [1.0, 3.0, 2.0]})
print(evaluate("SELECT price FROM ticks WHERE price > 1.5", ticks)["price"].to_pylist())
import sys
from candlewright_cep import install, match_recognize
print([name for name in ("pyspark", "pandas", "redis", "zmq", "pyiceberg") if name in sys.modules])
try:
    evaluate("SELECT nothing FROM ticks", ticks)
except TriggerRejected as error:
    print(str(error).partition(": ")[0])
"""
    assert run(python, "-c", code, cwd=tmp_path).stdout == "[3.0, 2.0]\n[]\nINVALID_SQL 1:8\n"


@pytest.mark.long
@pytest.mark.timeout(300)
def test_percentiles_of_all_rows_of_a_stream_need_an_extra(dist: Path, tmp_path: Path) -> None:
    code = """
import sys
import pyarrow as pa
from candlewright_cep import ReleaseBuffer, StreamInput, TriggerRejected, TriggerStream, compile_stream, evaluate
prices = [float(row) for row in range(4_000)]
times = pa.array(range(4_000)).cast(pa.timestamp("ns", "UTC"))
ticks = pa.table({"ticker": ["A"] * 4_000, "ts": times, "price": prices})
exact = evaluate("SELECT APPROX_PERCENTILE(price, 0.5) AS p FROM ticks", ticks)["p"].to_pylist()
print(exact, "datasketches" in sys.modules)
sql = "SELECT ticker, APPROX_PERCENTILE(price, 0.5) AS p FROM ticks GROUP BY ticker EMIT CHANGES"
try:
    query = compile_stream(sql, {"ticks": StreamInput(ticks.schema, ("ts",))})
except TriggerRejected as error:
    print(error.hint)
else:
    buffer = ReleaseBuffer("ts", "ticker")
    last = TriggerStream(query=query).feed(buffer.push(ticks).rows, buffer.clock).table["p"].to_pylist()[-1]
    print(abs(last - 2_000) < 40)
"""
    for extra, last in (("", "pip install 'candlewright-cep[sketches]'"), ("[sketches]", "True")):
        wanted = f"candlewright-cep{extra} @ {wheel(dist, 'candlewright_cep').as_uri()}"
        python = environment(tmp_path / f"env{extra}", dist, wanted)
        assert run(python, "-c", code, cwd=tmp_path).stdout == f"[1999.0] False\n{last}\n"


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("spark", "options"),
    [("3.5", []), ("4.0", []), ("4.0", ["--rocksdb"]), ("4.1", ["--rocksdb"]), ("4.3", []), ("4.3", ["--rocksdb"])],
)
def test_row_patterns_run_on_every_spark(dist: Path, tmp_path: Path, spark: str, options: list[str]) -> None:
    wanted = f"candlewright-cep[spark] @ {wheel(dist, 'candlewright_cep').as_uri()}"
    python = environment(tmp_path / "env", dist, wanted, f"pyspark=={spark}.*")
    script = tmp_path / "on_spark.py"
    script.write_text((ROOT / "tests" / "candlewright_cep" / "spark" / "on_spark.py").read_text())
    done = subprocess.run(
        [str(python), str(script), *options], capture_output=True, text=True, timeout=800, cwd=tmp_path, check=False,
        env=clean_environment(),
    )  # fmt: skip
    assert done.stdout.splitlines() == ["batch_agrees", "stream_agrees"], done.stderr[-4000:]


@pytest.fixture
def platform(dist: Path, tmp_path: Path) -> Iterator[dict[str, str]]:
    """A platform that uvx starts from its wheel; returns the variables with which a client finds it."""
    from candlewright_platform.supervisor.ports import free_port

    binds = {
        name: f"tcp://127.0.0.1:{free_port()}"
        for name in ("BROKER__BIND", "RELAY__REQUESTS_BIND", "RELAY__NOTIFICATIONS_BIND")
    }
    binds |= {name: f"127.0.0.1:{free_port()}" for name in ("SPARK__CONNECT_BIND", "HTTP__BIND", "CONSOLE__BIND")}
    variables = {f"CANDLEWRIGHT_{name}": bind for name, bind in binds.items()}
    uvx = [uv(), "tool", "run", "-q", "--python", sys.executable, "--find-links", str(dist)]
    command = [*uvx, "--from", str(wheel(dist, "candlewright_platform")), "candlewright", "up", "--sandbox"]
    with subprocess.Popen(
        [*command, "--data-dir", str(tmp_path / "data")], stdout=subprocess.PIPE, text=True, cwd=tmp_path,
        env=clean_environment(**variables, **index()),
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield variables
        finally:
            process.terminate()
            assert process.wait(120) == 0


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_client_talks_to_a_platform_of_another_environment(
    client: Path, platform: dict[str, str], tmp_path: Path
) -> None:
    empty = tmp_path / "elsewhere"
    empty.mkdir()
    (empty / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [str(client), "script.py"], capture_output=True, text=True, timeout=400, cwd=empty, check=False,
        env=clean_environment(**platform),
    )  # fmt: skip
    assert done.stdout == "120 120\nBTC/USDT.BINANCE\n", done.stderr
