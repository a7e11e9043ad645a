# One image; the argument picks the process: `operator`, `broker`, or any other command of partq.
#
#   docker build -t partq .
#   docker build -t partq --build-arg BASE=localhost/base:bookworm .    any base with Python >= 3.11
ARG BASE=python:3.12-slim-bookworm

# What partq depends on has a layer of its own: that changes seldom, and is most of what is built,
# pulled and kept. pip stays outside: nothing installs packages where partq runs. pip makes byte code,
# with which a broker is up a second earlier; that of Kubernetes' models is not used, and large.
FROM ${BASE} AS dependencies
WORKDIR /src
COPY constraints.txt ./
RUN python3 -m venv /opt/pip \
    && python3 -m venv --without-pip /opt/partq \
    && /opt/pip/bin/pip --python /opt/partq/bin/python3 install \
       --no-cache-dir --requirement constraints.txt \
    && find /opt/partq -depth \( -name tests -o -path "*/kubernetes/*/__pycache__" \) -type d \
       -exec rm -rf {} +

FROM dependencies AS build
COPY pyproject.toml README.md LICENSE ./
COPY operator ./operator
# To another root, so that it can be copied alone.
RUN /opt/pip/bin/pip --python /opt/partq/bin/python3 install --root /added \
       --no-cache-dir --constraint constraints.txt ".[operator,broker,cli]"

FROM ${BASE}
COPY --from=dependencies /opt/partq /opt/partq
COPY --from=build /added/opt/partq /opt/partq
# The root file system may be read-only: nothing is written there, byte code neither. USER, because
# kopf asks for the user's name, and the id that the pod runs as has none in /etc/passwd.
ENV PATH=/opt/partq/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    USER=partq
USER 65532:65532
EXPOSE 7411
ENTRYPOINT ["partq"]
CMD ["--help"]
