# One image; the argument picks the process: `operator`, `broker`, or any other command of partq.
#
#   docker build -t partq .
#   docker build -t partq --build-arg BASE=localhost/base:bookworm .    any base with Python >= 3.11
ARG BASE=python:3.12-slim-bookworm

FROM ${BASE} AS build
WORKDIR /src
# What it depends on first, in a layer of its own: that changes seldom, and takes most of the time.
COPY constraints.txt ./
RUN python3 -m venv /opt/partq \
    && /opt/partq/bin/pip install --no-cache-dir --requirement constraints.txt
COPY pyproject.toml README.md LICENSE ./
COPY operator ./operator
RUN /opt/partq/bin/pip install --no-cache-dir --constraint constraints.txt \
       ".[operator,broker,cli]" \
    && /opt/partq/bin/pip uninstall --yes --quiet pip \
    && find /opt/partq -depth -name tests -type d -exec rm -rf {} +

FROM ${BASE}
COPY --from=build /opt/partq /opt/partq
# The root file system may be read-only: nothing is written there, byte code neither; pip has made it,
# and a broker is up a second earlier with it. USER, because kopf asks for the user's name, and the
# id that the pod runs as has none in /etc/passwd.
ENV PATH=/opt/partq/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    USER=partq
USER 65532:65532
EXPOSE 7411
ENTRYPOINT ["partq"]
CMD ["--help"]
