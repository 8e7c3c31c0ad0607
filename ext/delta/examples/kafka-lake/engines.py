"""Reads the lake's table with other engines. Takes the table and the names of engines. Prints one JSON
document: what each engine finds."""

import glob
import json
import os
import sys

COLUMNS = ["kafka_partition", "kafka_offset"]
S3 = os.environ.get("AWS_ENDPOINT_URL")


def numbers(frame):
    """Rows, rows with different places, and sums of offsets and of the bytes of values."""
    return frame.height, frame.select(COLUMNS).n_unique(), int(frame["kafka_offset"].sum()), int(frame["value"].bin.size().sum())


def with_delta_rs(table):
    import deltalake
    import polars

    return numbers(polars.read_delta(deltalake.DeltaTable(table)))


def with_polars(table):
    import polars

    return numbers(polars.scan_delta(table).collect())


def with_duckdb(table):
    import duckdb
    import duckdb_extension_delta
    import duckdb_extension_httpfs

    c = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    for package in [duckdb_extension_delta, duckdb_extension_httpfs]:
        c.load_extension(glob.glob(os.path.dirname(package.__file__) + "/extensions/**/*.duckdb_extension", recursive=True)[0])
    if S3:
        c.execute(
            "create secret (type s3, url_style 'path', use_ssl false, endpoint ?, region ?, key_id ?, secret ?)",
            [S3.removeprefix("http://"), *(os.environ[n] for n in ["AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"])],
        )
    return c.execute(
        "select count(*), count(distinct (kafka_partition, kafka_offset)), sum(kafka_offset)::bigint, sum(octet_length(value))::bigint"
        f" from delta_scan('{table}')"
    ).fetchone()


def with_spark(table):
    from pyspark.sql import SparkSession

    conf = {
        "spark.driver.extraClassPath": os.environ["FENCEPOST_SPARK_JARS"] + "/*",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "4",
    }
    if S3:
        conf |= {
            "spark.hadoop.fs.s3a.endpoint": S3,
            "spark.hadoop.fs.s3a.endpoint.region": os.environ["AWS_REGION"],
            "spark.hadoop.fs.s3a.access.key": os.environ["AWS_ACCESS_KEY_ID"],
            "spark.hadoop.fs.s3a.secret.key": os.environ["AWS_SECRET_ACCESS_KEY"],
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
        }
    b = SparkSession.builder.master("local[1]").appName("kafka-lake")
    for name, value in conf.items():
        b = b.config(name, value)
    s = b.getOrCreate()
    s.sparkContext.setLogLevel("ERROR")
    t = s.read.format("delta").load(table.replace("s3://", "s3a://", 1))
    return [int(n) for n in t.selectExpr("count(*)", "count(distinct kafka_partition, kafka_offset)", "sum(kafka_offset)", "sum(octet_length(value))").first()]


ENGINES = {"delta-rs": with_delta_rs, "polars": with_polars, "duckdb": with_duckdb, "spark": with_spark}
out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # libraries print what they like
print(json.dumps({name: ENGINES[name](sys.argv[1]) for name in sys.argv[2:]}), file=out)
