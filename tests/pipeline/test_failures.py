"""What Spark raises, as a sentence."""

from pyspark.errors import PySparkException

from partq.errors import InternalError
from partq.pipeline.failures import as_ours


def test_a_class_that_spark_lacks_is_named_with_what_brings_it():
    raised = (
        "java.lang.RuntimeException: java.lang.ClassNotFoundException: "
        "Class org.apache.hadoop.fs.s3a.S3AFileSystem not found"
    )
    error = as_ours(PySparkException(raised))
    assert isinstance(error, InternalError)
    assert "it has no class org.apache.hadoop.fs.s3a.S3AFileSystem:" in error.message
    assert "spark.jars.packages=org.apache.hadoop:hadoop-aws:VERSION" in error.message
