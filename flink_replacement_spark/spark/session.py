"""The Spark session of the platform, and the start of its JVM, which takes longest and therefore begins first."""

import os
import sys
from collections.abc import Mapping
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from candlewright.wire.errors import ConfigurationError
from core.background import only_noted, start_thread
from core.settings import Settings
from flink_replacement_spark.spark.conf import is_listening, spark_conf
from flink_replacement_spark.spark.fence import DriverLock
from flink_replacement_spark.spark.java import java_home
from flink_replacement_spark.spark.jvm import Jvm, environment
from flink_replacement_spark.spark.worker_python import worker_python

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

__all__ = ["Starting", "add_vector_functions", "start_session"]

#: What Spark SQL adds to the environment of its workers. Spark has a daemon for each environment.
_OF_SQL = {"SPARK_SIMPLIFIED_TRACEBACK": "1", "PYTHON_UDF_BATCH_SIZE": "100"}
#: Spark's service of extensions that adds functions for vectors.
_VECTOR_FUNCTIONS = "org.apache.spark.sql.ml.InternalFunctionRegistration"


class Starting:
    """Spark as it starts: its JVM at once, its session on a thread, while this process loads what else it needs."""

    def __init__(self, session: "Future[SparkSession]", lock: DriverLock) -> None:
        self._session = session
        self.lock = lock

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Raises ConfigurationError for invalid settings, or if another driver uses the same data directory and
        address.
        """
        lock = DriverLock(settings.data_dir)
        if not lock.acquire() and is_listening(settings):
            raise ConfigurationError(
                f"another Spark driver uses {lock.path} and spark.connect_bind {settings.spark.connect_bind}: "
                "a standby on the same machine needs its own address"
            )
        conf = spark_conf(settings)
        jvm = _launch(settings, conf, lock)
        # Before the thread: Python lets a thread see modules that another thread has only half loaded. The last one,
        # which loads pandas, is needed by the first call to the JVM.
        import pyspark.sql.classic.dataframe
        import pyspark.testing  # noqa: F401

        session: Future[SparkSession] = Future()

        def run() -> None:
            try:
                context = _open_context(settings, conf, jvm)
                start_thread("first-task", partial(_load_workers, context), on_failure=only_noted)
                session.set_result(_session_of(context))
            except BaseException as error:
                # The owner gets it.
                session.set_exception(error)

        start_thread("spark-session", run)
        return cls(session, lock)

    def session(self) -> "SparkSession":
        """Waits for it. Raises the error of its start."""
        return self._session.result()


def start_session(settings: Settings, lock: DriverLock | None = None) -> "SparkSession":
    """Start the JVM and the session, with Spark Connect listening on `spark.connect_bind`.

    The JVM inherits `lock`, which must be held. Raises ConfigurationError for invalid settings.
    """
    conf = spark_conf(settings)
    return _session_of(_open_context(settings, conf, _launch(settings, conf, lock)))


def _launch(settings: Settings, conf: Mapping[str, str], lock: DriverLock | None) -> Jvm | None:
    """None if this process has a JVM, which it keeps for all of its sessions."""
    loaded = sys.modules.get("pyspark.core.context")
    if loaded is not None and loaded.SparkContext._gateway is not None:
        return None
    # On a cluster, the command of `worker_python` is a relative path.
    cwd = None if settings.spark.master.startswith("local") else settings.data_dir / "run"
    descriptors = () if lock is None else (lock.descriptor,)
    return Jvm.launch(conf, _variables(settings), descriptors=descriptors, cwd=cwd)


def _variables(settings: Settings) -> dict[str, str]:
    """What the JVM and the context read from the environment."""
    python = worker_python(settings.data_dir / "run", settings.spark.master)
    return {"JAVA_HOME": str(java_home(os.environ)), "PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python}


def _open_context(settings: Settings, conf: Mapping[str, str], jvm: Jvm | None) -> "SparkContext":
    from pyspark import SparkConf, SparkContext

    if jvm is not None:
        SparkContext._gateway = jvm.gateway()
        SparkContext._jvm = SparkContext._gateway.jvm
    # The context keeps the values that it finds; another session of this process may need another Python.
    with environment(_variables(settings)):
        context = SparkContext.getOrCreate(SparkConf(loadDefaults=False).setAll(list(conf.items())))
    context.setLogLevel("ERROR")
    return context


def _session_of(context: "SparkContext") -> "SparkSession":
    from pyspark.sql import SparkSession

    _register_no_sources(context)
    if SparkSession._should_update_active_session():
        _make_default(context)
    return SparkSession.builder.getOrCreate()


def _make_default(context: "SparkContext") -> None:
    """Make the session that `getOrCreate` finds, as Spark would, but without the functions of its machine learning; see
    `add_vector_functions`.
    """
    jvm: Any = context._jvm
    sessions = _object(jvm, "org.apache.spark.sql.classic.SparkSession")
    scala_context, extensions = context._jsc.sc(), jvm.org.apache.spark.sql.SparkSessionExtensions()
    getattr(sessions, "org$apache$spark$sql$classic$SparkSession$$applyExtensions")(scala_context, extensions)
    service = jvm.java.lang.Class.forName("org.apache.spark.sql.SparkSessionExtensionsProvider")
    for provider in jvm.java.util.ServiceLoader.load(service).stream().toArray():
        if provider.type().getName() != _VECTOR_FUNCTIONS:
            provider.get().apply(extensions)
    none, empty = jvm.scala.Option.empty(), _object(jvm, "scala.collection.immutable.Map").empty()
    classic = getattr(jvm, "org.apache.spark.sql.classic.SparkSession")
    classic.setDefaultSession(classic(scala_context, none, none, extensions, empty, empty))


def add_vector_functions(session: "SparkSession") -> None:
    """Add the functions `vector_to_array` and `array_to_vector` of Spark's machine learning.

    Spark adds them with its first session, which takes a fifth of the processor time of its start, because only they
    need Scala's reflection.
    """
    jvm: Any = session.sparkContext._jvm
    getattr(jvm, _VECTOR_FUNCTIONS)().apply(session._jsparkSession.extensions())


def _load_workers(context: "SparkContext") -> None:
    """Run a task, for which Spark starts the daemon of its Python workers, which then loads what they need."""
    context.environment.update(_OF_SQL)
    context.parallelize([0], 1).foreach(_pass)


def _pass(_: int) -> None:
    """The work of the first task."""


def _register_no_sources(context: "SparkContext") -> None:
    """Spark would start a Python process that searches the environment for packages named `pyspark_...`, and keep it.
    The platform registers its own sources.
    """
    jvm: Any = context._jvm
    sources = _object(jvm, "org.apache.spark.sql.execution.datasources.DataSourceManager")
    none = _object(jvm, "scala.collection.immutable.Map").empty()
    getattr(sources, "dataSourceBuilders_$eq")(jvm.scala.Some(none))


def _object(jvm: Any, name: str) -> Any:
    """A Scala object."""
    return getattr(getattr(jvm, f"{name}$"), "MODULE$")
