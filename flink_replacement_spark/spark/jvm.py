"""Starts the driver's JVM without waiting for it, so that this process can load PySpark meanwhile.

Spark's script `spark-submit` starts a first JVM, which only composes the command of the second one; that takes longer
than the second one needs to answer. So the command is composed here, unless a setting is in use that only Spark's
launcher knows.
"""

import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from candlewright.wire.errors import CandlewrightError
from flink_replacement_spark.spark.java import spark_home

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway  # type: ignore[import-untyped]

__all__ = ["LAUNCHER_VARIABLES", "Jvm", "environment", "java_command", "needs_launcher", "script_command"]

#: The options with which Spark's launcher starts each JVM, without the module for vectors: only Spark's machine
#: learning uses it, and the JVM cannot take its modules from its archive with it.
_OPENED = (
    "java.lang",
    "java.lang.invoke",
    "java.lang.reflect",
    "java.io",
    "java.net",
    "java.nio",
    "java.util",
    "java.util.concurrent",
    "java.util.concurrent.atomic",
    "jdk.internal.ref",
    "sun.nio.ch",
    "sun.nio.cs",
    "sun.security.action",
    "sun.util.calendar",
)
MODULE_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
    "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    "-Djdk.reflect.useDirectMethodHandle=false",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--enable-native-access=ALL-UNNAMED",
    "-Dderby.connection.requireAuthentication=false",
)
#: Variables, and files and entries of Spark's configuration, that change the command in Spark's launcher.
LAUNCHER_VARIABLES = (
    "HADOOP_CONF_DIR",
    "PYSPARK_SUBMIT_ARGS",
    "SPARK_DIST_CLASSPATH",
    "SPARK_PREPEND_CLASSES",
    "SPARK_SUBMIT_OPTS",
    "SPARK_TESTING",
    "YARN_CONF_DIR",
)
_LAUNCHER_FILES = ("spark-env.sh", "spark-defaults.conf", "java-opts")
_LAUNCHER_CONF = (
    "spark.driver.defaultExtraClassPath",
    "spark.driver.defaultJavaOptions",
    "spark.driver.extraLibraryPath",
)
_LOOK_SECONDS = 0.01


class Jvm:
    """A JVM that has been started, and that ends with this process."""

    def __init__(self, process: "subprocess.Popen[bytes]", folder: Path) -> None:
        self._process = process
        self._folder = folder

    @classmethod
    def launch(
        cls,
        conf: Mapping[str, str],
        variables: Mapping[str, str],
        *,
        descriptors: Sequence[int] = (),
        cwd: Path | None = None,
    ) -> "Jvm":
        """`variables` are added to the environment; the JVM inherits `descriptors`, and runs in `cwd`."""
        home = spark_home(os.environ)
        compose = script_command if needs_launcher(home, os.environ, conf) else java_command
        folder = Path(tempfile.mkdtemp(prefix="candlewright-jvm-"))
        process = subprocess.Popen(
            compose(home, conf, variables),
            # It ends when this pipe closes.
            stdin=subprocess.PIPE,
            env={
                **os.environ,
                **variables,
                "SPARK_HOME": str(home),
                "SPARK_CONNECT_MODE": "0",
                "_PYSPARK_DRIVER_CONN_INFO_PATH": str(folder / "address"),
            },
            cwd=cwd,
            pass_fds=descriptors,
            # Ctrl-C is for this process.
            preexec_fn=_ignore_interrupts,
        )
        return cls(process, folder)

    def gateway(self) -> "JavaGateway":
        """The connection to it, as soon as it answers. Raises CandlewrightError if it has ended."""
        from pyspark.java_gateway import launch_gateway

        port, secret = self._address()
        with environment({"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}):
            gateway = launch_gateway()  # type: ignore[no-untyped-call]
        gateway.proc = self._process
        return gateway

    def _address(self) -> tuple[int, str]:
        """Its port, and the secret that it expects; it writes the whole file under this name at once."""
        file = self._folder / "address"
        try:
            while not file.exists():
                if (code := self._process.poll()) is not None:
                    raise CandlewrightError(f"Spark's JVM ended with exit code {code} before it answered")
                time.sleep(_LOOK_SECONDS)
            content = file.read_bytes()
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
        size = int.from_bytes(content[4:8], "big")
        return int.from_bytes(content[:4], "big"), content[8 : 8 + size].decode()


def java_command(home: Path, conf: Mapping[str, str], variables: Mapping[str, str]) -> list[str]:
    """The command that Spark's launcher would compose from the same."""
    class_path = [
        *filter(None, [conf.get("spark.driver.extraClassPath", "")]),
        os.environ.get("SPARK_CONF_DIR", str(home / "conf")),
        *map(str, sorted((home / "jars").glob("slf4j-api-*.jar"))),
        str(home / "jars" / "*"),
    ]
    return [
        str(Path(variables["JAVA_HOME"]) / "bin" / "java"),
        "-cp",
        os.pathsep.join(class_path),
        f"-Xmx{conf['spark.driver.memory']}",
        *shlex.split(conf.get("spark.driver.extraJavaOptions", "")),
        *MODULE_OPTIONS,
        "org.apache.spark.deploy.SparkSubmit",
        *_submitted(conf),
    ]


def script_command(home: Path, conf: Mapping[str, str], variables: Mapping[str, str]) -> list[str]:
    arguments = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", ""))
    return [str(home / "bin" / "spark-submit"), *_submitted(conf)[:-1], *(arguments or ["pyspark-shell"])]


def _submitted(conf: Mapping[str, str]) -> list[str]:
    pairs = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
    return [*pairs, "pyspark-shell"]


def needs_launcher(home: Path, variables: Mapping[str, str], conf: Mapping[str, str]) -> bool:
    folder = Path(variables.get("SPARK_CONF_DIR", home / "conf"))
    is_named = any(map(variables.get, LAUNCHER_VARIABLES)) or any(map(conf.get, _LAUNCHER_CONF))
    return is_named or any((folder / name).exists() for name in _LAUNCHER_FILES)


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """`variables` in this process's environment until the end of the block."""
    before = {name: os.environ[name] for name in variables if name in os.environ}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)
