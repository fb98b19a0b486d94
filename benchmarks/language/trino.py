"""Row patterns compared with Trino's, over the same 1,000,000 stored rows.

    python -m benchmarks.language.trino [--folder dist/trino] [--rounds 3] [--output json]

Needs Maven and a JDK of version 25 (JAVA_HOME), and Maven Central: Trino's server is not there, but its test kit is,
which runs Trino 478 in one Java process. The first call copies its 215 libraries to the folder. One JSON line per
question: {"name", "rows", "seconds", "rows_per_second", "result_rows", "floor_seconds", "floor", "read_seconds" (the
part in which Trino makes the rows), "ratio" (of the rest of Trino's time to the pattern's)}. CPU seconds of all
threads; the best round counts. Both must find the same matches.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from candlewright_cep import evaluate

SYMBOLS, ROWS_OF_ONE = 100, 10_000
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion><groupId>benchmarks</groupId><artifactId>trino</artifactId><version>1</version>
  <dependencies><dependency>
    <groupId>io.trino</groupId><artifactId>trino-testing</artifactId><version>478</version>
  </dependency></dependencies>
</project>"""
_ROWS = f"""(SELECT s, i, (i * i * 31 + i * 17 + s * 101) % 1009 AS p
FROM UNNEST(sequence(0, {SYMBOLS - 1})) AS t(s) CROSS JOIN UNNEST(sequence(1, {ROWS_OF_ONE})) AS u(i))"""
_MATCHES = "MATCH_RECOGNIZE (PARTITION BY s ORDER BY i MEASURES FIRST(i) AS f {}) AS m"
QUESTIONS = {
    "V shape": "PATTERN (S D{3,} U{3,}) DEFINE D AS p < PREV(p), U AS p > PREV(p)",
    "run of rises": "PATTERN (U{5,}) DEFINE U AS p > PREV(p)",
}
#: Writes a line for each run of each query: its number, CPU seconds, the number of rows and their sum.
_JAVA = """
import com.sun.management.OperatingSystemMXBean;
import io.trino.testing.StandaloneQueryRunner;
import io.trino.testing.TestingSession;
import java.lang.management.ManagementFactory;
import java.nio.file.*;

public class Run {
  public static void main(String[] given) throws Exception {
    var system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    var runner = new StandaloneQueryRunner(TestingSession.testSessionBuilder().build());
    var found = new StringBuilder();
    for (int query = 2; query < given.length; query++) {
      for (int round = 0; round < Integer.parseInt(given[1]); round++) {
        long began = system.getProcessCpuTime();
        var row = runner.execute(given[query]).getMaterializedRows().get(0);
        double seconds = (system.getProcessCpuTime() - began) / 1e9;
        found.append("%d %.4f %s %s\\n".formatted(query - 2, seconds, row.getField(0), row.getField(1)));
      }
    }
    Files.writeString(Path.of(given[0]), found);
    System.exit(0);
  }
}
"""


def rows() -> pa.Table:
    symbol, number = np.repeat(np.arange(SYMBOLS), ROWS_OF_ONE), np.tile(np.arange(1, ROWS_OF_ONE + 1), SYMBOLS)
    return pa.table({"s": symbol, "i": number, "p": (number * number * 31 + number * 17 + symbol * 101) % 1009})


def by_trino(folder: Path, queries: list[str], rounds: int) -> list[tuple[float, int, int]]:
    """CPU seconds of the best round, the number of rows and the sum, for each query."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pom.xml").write_text(_POM)
    (folder / "Run.java").write_text(_JAVA)
    if not (folder / "lib").exists():
        copied = ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={folder.resolve() / 'lib'}"]
        subprocess.run(copied, cwd=folder, check=True)
    java = str(Path(os.environ["JAVA_HOME"], "bin", "java")) if "JAVA_HOME" in os.environ else "java"
    options = ["-Xmx3g", "--add-modules", "jdk.incubator.vector", "-cp", str(folder / "lib" / "*")]
    with (folder / "log").open("w") as log:
        run = [java, *options, str(folder / "Run.java"), str(folder / "found"), str(rounds), *queries]
        subprocess.run(run, check=True, stdout=log, stderr=log)
    lines = [line.split() for line in (folder / "found").read_text().splitlines()]
    return [
        min((float(line[1]), int(line[2]), int(line[3])) for line in lines if int(line[0]) == place)
        for place in range(len(queries))
    ]


def by_us(table: pa.Table, rest: str, rounds: int) -> tuple[float, int, int]:
    found, seconds = table, float("inf")
    for _ in range(rounds):
        began = time.process_time()
        found = evaluate(f"SELECT * FROM rows {_MATCHES.format(rest)}", table)
        seconds = min(seconds, time.process_time() - began)
    return seconds, found.num_rows, pc.sum(found.column("f")).as_py()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("dist", "trino"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", choices=["json"], default="json")
    options = parser.parse_args()
    queries = [f"SELECT count(*), sum(p) FROM {_ROWS}"]
    queries += [f"SELECT count(*), sum(f) FROM {_ROWS} {_MATCHES.format(rest)}" for rest in QUESTIONS.values()]
    (reading, *_), *others = by_trino(options.folder, queries, options.rounds)
    table = rows()
    for (name, rest), (floor, *wanted) in zip(QUESTIONS.items(), others, strict=True):
        seconds, *found = by_us(table, rest, options.rounds)
        if found != wanted:
            sys.exit(f"{name}: {found} matches here and their sum, {wanted} in Trino")
        line = {
            "name": name,
            "rows": table.num_rows,
            "seconds": round(seconds, 3),
            "rows_per_second": round(table.num_rows / seconds),
            "result_rows": found[0],
            "floor_seconds": round(floor, 3),
            "floor": "Trino 478, in one process",
            "read_seconds": round(reading, 3),
            "ratio": round((floor - reading) / seconds, 1),
        }
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
