"""Reads the lake's table with delta-rs, Polars and DuckDB. Prints one JSON document."""

import glob
import json
import os
import sys

import deltalake
import duckdb
import duckdb_extension_delta
import polars

COLUMNS = ["kafka_partition", "kafka_offset"]


def numbers(frame):
    """Rows, rows with different places, and sums of offsets and of the bytes of values."""
    return frame.height, frame.select(COLUMNS).n_unique(), int(frame["kafka_offset"].sum()), int(frame["value"].bin.size().sum())


def with_delta_rs(table):
    return numbers(polars.read_delta(deltalake.DeltaTable(table)))


def with_polars(table):
    return numbers(polars.scan_delta(table).collect())


def with_duckdb(table):
    c = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    there = os.path.dirname(duckdb_extension_delta.__file__)
    c.load_extension(glob.glob(there + "/extensions/**/delta.duckdb_extension", recursive=True)[0])
    return c.execute(
        "select count(*), count(distinct (kafka_partition, kafka_offset)), sum(kafka_offset)::bigint, sum(octet_length(value))::bigint"
        f" from delta_scan('{table}')"
    ).fetchone()


ENGINES = {"delta-rs": with_delta_rs, "polars": with_polars, "duckdb": with_duckdb}
print(json.dumps({name: read(sys.argv[1]) for name, read in ENGINES.items()}))
