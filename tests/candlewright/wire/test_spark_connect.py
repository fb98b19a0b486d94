"""Sessions of Spark Connect, with a server that the test provides."""

# ruff: noqa: N802  (a servicer's methods have the names of the calls)

import atexit
import gc
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pyarrow as pa
import pyspark.sql.connect.proto as pb2
import pytest
from pyspark.sql.connect.client import reattach
from pyspark.sql.connect.proto import base_pb2_grpc as rpc

from candlewright.wire.spark_connect import connect_session

pytestmark = [
    pytest.mark.timeout(30),
    # Spark's client warns if it cannot close its session, through a deprecated method.
    pytest.mark.filterwarnings("ignore:The 'warn' method is deprecated"),
]

_IDS = pa.table({"id": pa.array([0, 1, 2], pa.int64())})


class Server(rpc.SparkConnectServiceServicer):  # type: ignore[misc]
    """Answers every query with the same three rows."""

    def Config(self, request: Any, context: grpc.ServicerContext) -> Any:
        return pb2.ConfigResponse(session_id=request.session_id)

    def AnalyzePlan(self, request: Any, context: grpc.ServicerContext) -> Any:
        kinds = pb2.DataType
        field = kinds.StructField(name="id", data_type=kinds(long=kinds.Long()))
        schema = pb2.AnalyzePlanResponse.Schema(schema=kinds(struct=kinds.Struct(fields=[field])))
        return pb2.AnalyzePlanResponse(session_id=request.session_id, schema=schema)

    def ExecutePlan(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, _IDS.schema) as written:
            written.write_table(_IDS)
        batch = pb2.ExecutePlanResponse.ArrowBatch(row_count=3, data=sink.getvalue().to_pybytes())
        named = {"session_id": request.session_id, "operation_id": request.operation_id}
        yield pb2.ExecutePlanResponse(**named, response_id="rows", arrow_batch=batch)
        end = pb2.ExecutePlanResponse.ResultComplete()
        yield pb2.ExecutePlanResponse(**named, response_id="end", result_complete=end)

    def ReleaseExecute(self, request: Any, context: grpc.ServicerContext) -> Any:
        return pb2.ReleaseExecuteResponse(session_id=request.session_id)

    def ReleaseSession(self, request: Any, context: grpc.ServicerContext) -> Any:
        return pb2.ReleaseSessionResponse(session_id=request.session_id)


@pytest.fixture
def url() -> Iterator[str]:
    with ThreadPoolExecutor(2) as pool:
        server = grpc.server(pool)
        rpc.add_SparkConnectServiceServicer_to_server(Server(), server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield f"sc://127.0.0.1:{port}"
        finally:
            server.stop(None).wait()


def _left_to_the_collector(url: str) -> "weakref.ref[Any]":
    with connect_session(url) as session:
        assert session.range(3).toArrow().to_pylist() == _IDS.to_pylist()
    circle = [session]
    circle.append(circle)
    return weakref.ref(session)


def test_a_session_that_is_collected_disturbs_none_that_gives_work_to_the_common_threads(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Collecting(ThreadPoolExecutor):
        def _adjust_thread_count(self) -> None:
            # Within `submit`, which holds the lock that `shutdown` waits for.
            gc.collect()
            super()._adjust_thread_count()  # type: ignore[misc]

    gc.collect()
    gc.disable()
    try:
        former = _left_to_the_collector(url)
        monkeypatch.setattr(reattach, "ThreadPoolExecutor", Collecting)
        with connect_session(url) as session:
            assert session.range(3).toArrow().to_pylist() == _IDS.to_pylist()
            assert former() is None
    finally:
        gc.enable()


def test_a_session_leaves_nothing_to_the_end_of_the_process(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    registered: list[Callable[[], object]] = []
    monkeypatch.setattr(atexit, "register", registered.append)
    monkeypatch.setattr(atexit, "unregister", registered.remove)
    with connect_session(url) as session:
        assert session.range(3).toArrow().to_pylist() == _IDS.to_pylist()
        assert len(registered) == 1
    assert session.is_stopped
    assert registered == []


def test_a_server_that_went_away_is_waited_for_some_seconds_only(url: str) -> None:
    with connect_session(url) as session:
        (policy,) = session.client.get_retry_policies()
        state = policy.to_state()
        waits = list(iter(state.next_attempt, None))
    assert 10_000 < sum(waits) < 20_000
