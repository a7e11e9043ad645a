# A Redis for a cluster that cannot pull one: Debian's, in the place of the official image.
ARG BASE
FROM ${BASE}
RUN apt-get update \
    && apt-get install --yes --no-install-recommends redis-server \
    && rm -rf /var/lib/apt/lists/*
USER 999:999
WORKDIR /data
ENTRYPOINT ["redis-server"]
