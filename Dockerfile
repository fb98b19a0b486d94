# One image for every part; compose.yaml names the command of each.
FROM python:3.12-slim-bookworm
ENV PYTHONUNBUFFERED=1 MALLOC_ARENA_MAX=2 ARROW_DEFAULT_MEMORY_POOL=system PATH=/app/.venv/bin:$PATH
WORKDIR /app
COPY requirements.lock pyproject.toml README.md run ./
COPY core core
COPY flink_replacement_spark flink_replacement_spark
RUN apt-get update \
    && apt-get install -y --no-install-recommends openjdk-17-jre-headless procps \
    && rm -rf /var/lib/apt/lists/* \
    && python -m venv .venv \
    && pip install --no-cache-dir --require-hashes -r requirements.lock
COPY . .
RUN pip install --no-cache-dir --no-deps --no-build-isolation -e . \
    && useradd --create-home --uid 10001 candlewright \
    && mkdir -p /data && chown candlewright /data
USER candlewright
# With the jars of an object store, as compose.yaml has one.
RUN CANDLEWRIGHT_ICEBERG__WAREHOUSE=s3://lake/ python -m flink_replacement_spark.jars
CMD ["candlewright", "--help"]
