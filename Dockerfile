# Two images. The argument picks the process: `operator`, `broker`, or any other command of partq.
#
#   docker build -t partq .                             everything but Spark
#   docker build -t partq-spark --target spark .        jobs of Spark, drivers and executors
#   docker build --build-arg BASE=localhost/base:bookworm .    any base with Python >= 3.11; for
#                                                       Spark one of Debian's, with Java in its archive
ARG BASE=python:3.12-slim-bookworm

# What partq depends on has stages and layers of its own: that changes seldom, and is most of what is
# built, pulled and kept. Stages whose names end in `dependencies` have nothing of partq's own code.
#
# pip stays outside: nothing installs packages where partq runs. pip makes byte code, with which a
# broker is up a second earlier; that of Kubernetes' models is not used, and large.
FROM ${BASE} AS dependencies
WORKDIR /src
COPY constraints.txt ./
RUN python3 -m venv /opt/pip \
    && python3 -m venv --without-pip /opt/partq \
    && /opt/pip/bin/pip --python /opt/partq/bin/python3 install \
       --no-cache-dir --require-hashes --requirement constraints.txt \
    && find /opt/partq -depth \( -name tests -o -path "*/kubernetes/*/__pycache__" \) -type d \
       -exec rm -rf {} +

# The root file system may be read-only: nothing is written there, byte code neither. USER, because
# kopf asks for the user's name, and the id that the pod runs as has none in /etc/passwd.
FROM ${BASE} AS run-dependencies
COPY --from=dependencies /opt/partq /opt/partq
ENV PATH=/opt/partq/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    USER=partq

# Spark: pyspark is all of it, Java's part too. Its examples are not used.
FROM dependencies AS spark-packages
COPY constraints-spark.txt ./
RUN /opt/pip/bin/pip --python /opt/partq/bin/python3 install --root /added \
       --no-cache-dir --require-hashes --requirement constraints-spark.txt \
    && cd /added/opt/partq/lib/python3*/site-packages \
    && rm -rf pyspark/data pyspark/examples pyarrow/include \
    && find . -depth -name tests -type d -exec rm -rf {} +

# The folder: minimal images lack it, and Java's package does not expect that. The user: Hadoop's
# libraries, which Spark reads files with, ask for the name of the one they run as. The links: where
# Spark looks for itself, and mounts its settings into pods.
FROM run-dependencies AS spark-dependencies
RUN mkdir -p /usr/share/man/man1 \
    && apt-get update \
    && apt-get install --yes --no-install-recommends default-jre-headless tini \
    && apt-get clean && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 65532 --user-group --no-create-home --home-dir /tmp --shell /usr/sbin/nologin partq
COPY --from=spark-packages /added/opt/partq /opt/partq
RUN mkdir -p /opt/spark/conf /opt/spark/pod-template \
    && ln -s /opt/partq/lib/python3*/site-packages/pyspark/bin \
             /opt/partq/lib/python3*/site-packages/pyspark/jars \
             /opt/partq/lib/python3*/site-packages/pyspark/python \
             /opt/partq/lib/python3*/site-packages/pyspark/sbin /opt/spark/
ENV JAVA_HOME=/usr/lib/jvm/default-java \
    MPLCONFIGDIR=/tmp/matplotlib \
    PYSPARK_PYTHON=/opt/partq/bin/python3 \
    SPARK_HOME=/opt/spark

FROM dependencies AS build
COPY pyproject.toml README.md LICENSE ./
COPY operator ./operator
# To another root, so that it can be copied alone. What it needs is there already, by its hashes.
RUN /opt/pip/bin/pip --python /opt/partq/bin/python3 install --root /added \
       --no-cache-dir --no-deps .

FROM spark-dependencies AS spark
COPY --from=build /added/opt/partq /opt/partq
COPY scripts/pipeline.py /opt/partq/pipeline.py
USER 65532:65532
# Of a read-only file system this is the one place to write to: mount a volume at /tmp.
WORKDIR /tmp
ENTRYPOINT ["tini", "-s", "--", "python3", "-P", "-m", "partq.spark.container"]
CMD ["--help"]

# The last one is what is built unless another is asked for.
FROM run-dependencies
COPY --from=build /added/opt/partq /opt/partq
USER 65532:65532
EXPOSE 7411
ENTRYPOINT ["partq"]
CMD ["--help"]
