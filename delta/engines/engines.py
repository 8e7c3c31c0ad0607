"""Reads a Delta table with one engine, or tries to write it. Prints one JSON document."""

import glob
import json
import os
import sys

import deltalake
import duckdb
import duckdb_extension_delta
import polars


def with_delta_rs(table, version):
    t = deltalake.DeltaTable(table, version=version)
    read = polars.read_delta(t)
    return t.version(), read.height, int(read["id"].sum()), float(read["sum"].sum())


def with_polars(table, version):
    t = polars.scan_delta(table, version=version)
    row = t.select(polars.len(), polars.col("id").sum(), polars.col("sum").sum()).collect().row(0)
    return None, *row


def with_duckdb(table, version):
    c = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    there = os.path.dirname(duckdb_extension_delta.__file__)
    c.load_extension(glob.glob(there + "/extensions/**/delta.duckdb_extension", recursive=True)[0])
    at = "" if version is None else f", version={version}"
    row = c.execute(f"select count(*), sum(id), sum(sum) from delta_scan('{table}'{at})").fetchone()
    return None, *row


ENGINES = {"delta-rs": with_delta_rs, "polars": with_polars, "duckdb": with_duckdb}


def read(table, versions):
    """Reads the newest version with each engine, then some versions."""
    found = []
    for name, engine in ENGINES.items():
        for version in [None, *versions]:
            v, rows, ids, total = engine(table, version)
            found.append({"engine": name, "version": version, "newest": v, "rows": rows, "ids": int(ids or 0), "sum": float(total or 0)})
    return found


def write(table):
    """Tries what a foreign program might do, and says how each ended."""
    t = lambda: deltalake.DeltaTable(table)
    row = polars.DataFrame({"id": [1], "name": ["foreign"], "sum": [1.0]})
    tries = {
        "append": lambda: row.write_delta(table, mode="append"),
        "overwrite": lambda: row.write_delta(table, mode="overwrite"),
        "delete": lambda: t().delete(),
        "optimize": lambda: t().optimize.compact(),
        "vacuum": lambda: t().vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False),
        "lite vacuum": lambda: t().vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False, full=False),
        "checkpoint": lambda: t().create_checkpoint(),
        "cleanup": lambda: t().cleanup_metadata(),
    }
    ended = {}
    for name, what in tries.items():
        try:
            what()
            ended[name] = "done"
        except Exception as e:
            ended[name] = f"{type(e).__name__}: {e}"
    return ended


if sys.argv[1] == "read":
    print(json.dumps(read(sys.argv[2], [int(v) for v in sys.argv[3:]])))
else:
    print(json.dumps(write(sys.argv[2])))
