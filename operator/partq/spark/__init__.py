"""The data source `partq`: Spark reads queues and writes them."""
