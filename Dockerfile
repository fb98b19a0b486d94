# One image for every part; compose.yaml names the command of each. The first stage builds the wheels with the development
# tools and installs them without; the second takes that installation alone.
FROM python:3.12-slim-bookworm AS build
WORKDIR /src
COPY requirements.lock ./
RUN python -m venv /opt/build \
    && /opt/build/bin/pip install --no-cache-dir --require-hashes -r requirements.lock
COPY . .
RUN /opt/build/bin/python distributions/pages.py \
    && /opt/build/bin/pip wheel --no-deps --no-build-isolation -w /wheels \
        . ./distributions/candlewright ./distributions/candlewright-cep \
    && /opt/build/bin/pip install --no-cache-dir --no-deps /wheels/*.whl \
    && /opt/build/bin/python distributions/inventory.py lock > /wheels/requirements.lock
RUN python -m venv /opt/candlewright \
    && /opt/candlewright/bin/pip install --no-cache-dir --require-hashes -r /wheels/requirements.lock \
    && /opt/candlewright/bin/pip install --no-cache-dir --no-deps /wheels/*.whl

FROM python:3.12-slim-bookworm
ENV PYTHONUNBUFFERED=1 MALLOC_ARENA_MAX=2 ARROW_DEFAULT_MEMORY_POOL=system PATH=/opt/candlewright/bin:$PATH
RUN apt-get update \
    && apt-get install -y --no-install-recommends openjdk-17-jre-headless procps \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 10001 candlewright \
    && mkdir -p /data && chown candlewright /data
COPY --from=build /opt/candlewright /opt/candlewright
COPY LICENSE NOTICE /usr/share/doc/candlewright/
USER candlewright
WORKDIR /home/candlewright
# With the jars of an object store, as compose.yaml has one.
RUN CANDLEWRIGHT_ICEBERG__WAREHOUSE=s3://lake/ python -m flink_replacement_spark.jars
CMD ["candlewright", "--help"]
