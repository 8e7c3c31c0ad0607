"""Reads and writes tables with other engines.

Takes a JSON document on each line of its input: which engine, what to do, with which table. Answers
each with one on a line of its output. It ends with its input.
"""

import contextlib
import datetime
import decimal
import glob
import json
import os
import shutil
import sys
import tempfile

# What the filters of types_test.go call TIME and FIELD. The first is the type of the column "ts", the second
# a member of the column "g".
DIALECT = {"TIME": "timestamp", "FIELD": "g.x"}


def said(where, dialect):
    for name, text in dialect.items():
        where = where.replace(name, text)
    return where


# Rows of the files that ready_test.go commits. The price has too many digits for an integer.
def ready(first):
    return [
        {"id": n, "name": f"order {n}", "sum": n / 4, "ts": EPOCH + datetime.timedelta(microseconds=n), "price": PRICE + n}
        for n in range(first, first + 10)
    ]


EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
PRICE = decimal.Decimal("123456789012345678.25")


def plain(v):
    """A value as text that is the same from all engines."""
    if isinstance(v, bool) or v is None or isinstance(v, str):
        return v
    if isinstance(v, float):
        return f"{v:.17e}"
    if isinstance(v, (bytes, bytearray)):
        return v.hex()
    if isinstance(v, datetime.datetime):
        return (v.astimezone(datetime.timezone.utc) if v.tzinfo else v).strftime("%Y-%m-%dT%H:%M:%S.%f")
    if hasattr(v, "asDict"):  # Spark's
        v = v.asDict()
    if isinstance(v, dict):
        return {str(name): plain(part) for name, part in v.items()}
    if isinstance(v, (list, tuple)):
        if v and all(isinstance(part, dict) and sorted(part) == ["key", "value"] for part in v):
            return {part["key"]: plain(part["value"]) for part in v}  # a map
        return [plain(part) for part in v]
    return str(v)  # integers, decimals, dates


# What every engine computes of a table.
COLUMNS = "count(*), min(id), max(id), sum(id), count(distinct id), sum(sum)"


class DeltaRS:
    """delta-rs, with its own reader."""

    def __init__(self):
        import deltalake
        from arro3.core import Array, DataType, Table

        self.lib = deltalake
        self.row = Table.from_pydict({"id": Array([1], DataType.int64()), "name": Array(["foreign"], DataType.string()), "sum": Array([1.0], DataType.float64())})
        self.versions = f"delta-rs {deltalake.__version__}"

    def read(self, table, version):
        found = self.lib.QueryBuilder().register("t", self.lib.DeltaTable(table, version=version)).execute(f"select {COLUMNS} from t")
        return [c[0].as_py() for c in found.read_all().columns]

    def query(self, table, text):
        import polars

        found = self.lib.QueryBuilder().register("t", self.lib.DeltaTable(table)).execute(text)
        return polars.DataFrame(found.read_all()).to_dicts()

    def rows(self, table):
        return self.query(table, "select * from t")

    def ids(self, table, where, expression):
        return [r["id"] for r in self.query(table, "select id from t where " + said(where, DIALECT | {"FIELD": "g['x']"}))]

    def make(self, file, first):
        """A file by the library parquet of Rust."""
        import polars

        with tempfile.TemporaryDirectory() as dir:
            self.lib.write_deltalake(dir, polars.DataFrame(ready(first), schema_overrides={"price": polars.Decimal(30, 2)}))
            (made,) = glob.glob(dir + "/*.parquet")
            shutil.copy(made, file)

    def writes(self, table):
        t = lambda: self.lib.DeltaTable(table)
        return {
            "append": lambda: self.lib.write_deltalake(table, self.row, mode="append"),
            "overwrite": lambda: self.lib.write_deltalake(table, self.row, mode="overwrite"),
            "delete": lambda: t().delete(),
            "update": lambda: t().update({"sum": "0.0"}),
            "optimize": lambda: t().optimize.compact(),
            "restore": lambda: t().restore(1),
            "vacuum": lambda: self.vacuum(table, 0),
            "lite vacuum": lambda: t().vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False, full=False),
            "checkpoint": lambda: t().create_checkpoint(),
            "cleanup": lambda: t().cleanup_metadata(),
        }

    def vacuum(self, table, hours):
        self.lib.DeltaTable(table).vacuum(retention_hours=hours, dry_run=False, enforce_retention_duration=False, full=True)


class Polars:
    def __init__(self):
        import polars

        self.lib = polars
        self.versions = f"Polars {polars.__version__}"

    def read(self, table, version):
        c, p = self.lib.col, self.lib
        t = p.scan_delta(table, version=version)
        return t.select(p.len(), c("id").min().alias("a"), c("id").max().alias("b"), c("id").sum().alias("c"), c("id").n_unique().alias("d"), c("sum").sum()).collect().row(0)

    def rows(self, table):
        return self.lib.scan_delta(table).collect().to_dicts()

    def ids(self, table, where, expression):
        names = {"c": self.lib.col, "D": decimal.Decimal, "date": datetime.date, "at": lambda us: EPOCH + datetime.timedelta(microseconds=us)}
        return self.lib.scan_delta(table).filter(eval(expression, names)).select("id").collect()["id"].to_list()

    def make(self, file, first):
        self.lib.DataFrame(ready(first), schema_overrides={"price": self.lib.Decimal(30, 2)}).write_parquet(file)

    def line(self, text):
        return eval(text, {"polars": self.lib})

    def writes(self, table):
        row = self.lib.DataFrame({"id": [1], "name": ["foreign"], "sum": [1.0]})
        return {mode: lambda mode=mode: row.write_delta(table, mode=mode) for mode in ["append", "overwrite"]}


class DuckDB:
    def __init__(self):
        import duckdb
        import duckdb_extension_delta
        import duckdb_extension_httpfs

        self.c = duckdb.connect(config={"allow_unsigned_extensions": "true"})
        for package in [duckdb_extension_delta, duckdb_extension_httpfs]:
            self.c.load_extension(glob.glob(os.path.dirname(package.__file__) + "/extensions/**/*.duckdb_extension", recursive=True)[0])
        if where := os.environ.get("AWS_ENDPOINT_URL"):
            self.c.execute(
                "create secret (type s3, url_style 'path', use_ssl false, endpoint ?, region ?, key_id ?, secret ?)",
                [where.removeprefix("http://"), *(os.environ[n] for n in ["AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"])],
            )
        self.versions = f"DuckDB {duckdb.__version__}"

    def read(self, table, version):
        at = "" if version is None else f", version={version}"
        return self.c.execute(f"select {COLUMNS} from delta_scan('{table}'{at})").fetchone()

    def rows(self, table):
        # To return a timestamp with a zone, DuckDB needs a package more.
        c = self.c.execute(f"select * replace (epoch_us(ts) as ts) from delta_scan('{table}')")
        names = [d[0] for d in c.description]
        found = [dict(zip(names, row)) for row in c.fetchall()]
        for row in found:
            row["ts"] = EPOCH + datetime.timedelta(microseconds=row["ts"])
        return found

    def ids(self, table, where, expression):
        return [r[0] for r in self.c.execute(f"select id from delta_scan('{table}') where " + said(where, DIALECT | {"TIME": "timestamptz"})).fetchall()]

    def make(self, file, first):
        columns = "n id, 'order ' || n \"name\", n / 4.0 :: double \"sum\", make_timestamptz(n) ts, ('" + str(PRICE) + "' :: decimal(30, 2) + n) :: decimal(30, 2) price"
        self.c.execute(f"copy (select {columns} from range({first}, {first + 10}) t(n)) to '{file}' (format parquet)")

    def line(self, text):
        return eval(text, {"duckdb": self.c})

    def statement(self, text):
        return self.c.execute(text).fetchone()

    def writes(self, table):
        # Append is all that DuckDB can do with a Delta table.
        def append():
            self.c.execute(f"attach '{table}' as foreigner (type delta, read_write)")
            try:
                self.c.execute("insert into foreigner values (1, 'foreign', 1.0)")
            finally:
                self.c.execute("detach foreigner")

        return {"append": append}


class PyIcebergREST:
    """A table of its own makes the metadata that the catalog serves as those of a publisher."""

    def __init__(self):
        import pyarrow
        import pyiceberg
        from pyiceberg.catalog import load_catalog
        from pyiceberg.catalog.memory import InMemoryCatalog
        from pyiceberg.catalog.rest import DEFAULT_ENDPOINTS

        self.arrow, self.load, self.all = pyarrow, load_catalog, DEFAULT_ENDPOINTS
        self.own = InMemoryCatalog("own", warehouse="file://" + os.getcwd())
        self.versions = f"PyIceberg {pyiceberg.__version__}"

    def batch(self, first):
        return self.arrow.table({"id": range(first, first + 10), "name": [f"order {n}" for n in range(first, first + 10)]})

    def commit(self, table, first):
        """Adds rows to a table at a location, and says where its metadata are."""
        rows = self.batch(first)
        if first == 0:
            self.own.create_namespace("n")
            self.own.create_table("n.t", rows.schema, location=table)
        t = self.own.load_table("n.t")
        t.append(rows)
        return t.metadata_location

    def rest(self, url):
        return self.load("rest", type="rest", uri=url)

    def seen(self, url):
        """What the catalog has, and the rows of its table."""
        c = self.rest(url)
        t = c.load_table("sales.orders")
        ids = t.scan().to_arrow()["id"].to_pylist()
        old = t.scan(snapshot_id=t.metadata.snapshots[0].snapshot_id).to_arrow().num_rows
        refs = self.load("refs", type="rest", uri=url, **{"snapshot-loading-mode": "refs"}).load_table("sales.orders")
        return {
            "namespaces": [".".join(n) for n in c.list_namespaces()],
            "tables": [".".join(n) for n in c.list_tables("sales")],
            "exists": [c.table_exists("sales.orders"), c.table_exists("sales.none"), c.namespace_exists("sales"), c.namespace_exists("none")],
            "views": len(c.list_views("sales")),
            "location": t.metadata_location,
            "rows": len(ids),
            "sum": sum(ids),
            "oldest": old,
            "snapshots": [len(t.metadata.snapshots), len(refs.metadata.snapshots)],
        }

    def refused(self, url):
        """Changes, and the error of each: of this client, which knows what the catalog lacks, and of one that asks anyway."""
        c = self.rest(url)
        early = self.changes(c)
        c._supported_endpoints.update(self.all)
        return {"early": early, "late": self.changes(c)}

    def changes(self, c):
        rows = self.batch(0)
        ended = {}
        for name, what in {
            "append": lambda: c.load_table("sales.orders").append(rows),
            "delete": lambda: c.load_table("sales.orders").delete(),
            "properties": lambda: c.load_table("sales.orders").transaction().set_properties(a="b").commit_transaction(),
            "create": lambda: c.create_table("sales.other", rows.schema),
            "drop": lambda: c.drop_table("sales.orders"),
            "rename": lambda: c.rename_table("sales.orders", "sales.other"),
            "namespace": lambda: c.create_namespace("other"),
            "drop namespace": lambda: c.drop_namespace("sales"),
            "register": lambda: c.register_table("sales.other", "s3://bucket/x"),
        }.items():
            try:
                what()
                ended[name] = "done"
            except Exception as e:
                ended[name] = told(e)
        return ended


class Spark:
    def __init__(self):
        import pyspark
        from pyspark.sql import SparkSession

        conf = {
            "spark.driver.extraClassPath": os.environ["FENCEPOST_SPARK_JARS"] + "/*",
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -Dderby.system.home=" + os.getcwd(),
            "spark.ui.enabled": "false",
            # The tables are small, and so is the machine.
            "spark.sql.shuffle.partitions": "1",
            "spark.sql.adaptive.enabled": "false",
            "spark.sql.sources.parallelPartitionDiscovery.parallelism": "1",
            "spark.databricks.delta.snapshotPartitions": "1",
            # A vacuum may delete what is younger than a week.
            "spark.databricks.delta.retentionDurationCheck.enabled": "false",
        }
        if where := os.environ.get("AWS_ENDPOINT_URL"):
            conf |= {
                "spark.hadoop.fs.s3a.endpoint": where,
                "spark.hadoop.fs.s3a.endpoint.region": os.environ["AWS_REGION"],
                "spark.hadoop.fs.s3a.access.key": os.environ["AWS_ACCESS_KEY_ID"],
                "spark.hadoop.fs.s3a.secret.key": os.environ["AWS_SECRET_ACCESS_KEY"],
                "spark.hadoop.fs.s3a.path.style.access": "true",
                "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
            }
        b = SparkSession.builder.master("local[1]").appName("engines")
        for name, value in conf.items():
            b = b.config(name, value)
        self.s = b.getOrCreate()
        self.s.sparkContext.setLogLevel("OFF")
        self.versions = f"Spark {pyspark.__version__}"

    def at(self, table):
        return table.replace("s3://", "s3a://", 1)

    def read(self, table, version):
        r = self.s.read.format("delta")
        if version is not None:
            r = r.option("versionAsOf", version)
        columns = [c.strip() for c in COLUMNS.split(", ")]
        found = list(r.load(self.at(table)).selectExpr(*columns).first())
        # The state of each version that was read would stay in memory.
        for cached in self.s.sparkContext._jsc.getPersistentRDDs().values():
            cached.unpersist(False)
        return found

    def rows(self, table):
        return [r.asDict() for r in self.s.read.format("delta").load(self.at(table)).collect()]

    def ids(self, table, where, expression):
        return [r[0] for r in self.s.read.format("delta").load(self.at(table)).where(said(where, DIALECT)).select("id").collect()]

    def writes(self, table):
        t = f"delta.`{self.at(table)}`"
        row = lambda: self.s.createDataFrame([(1, "foreign", 1.0)], "id long, name string, sum double").write.format("delta")
        sql = {
            "insert": f"insert into {t} values (1, 'foreign', 1.0)",
            "delete": f"delete from {t}",
            "update": f"update {t} set sum = 0",
            "optimize": f"optimize {t}",
            "restore": f"restore table {t} to version as of 1",
            "vacuum": f"vacuum {t} retain 0 hours",
            "lite vacuum": f"vacuum {t} lite",
            "drop feature": f"alter table {t} drop feature fencepost",
            "properties": f"alter table {t} set tblproperties ('a' = 'b')",
        }
        return {
            "append": lambda: row().mode("append").save(self.at(table)),
            "overwrite": lambda: row().mode("overwrite").save(self.at(table)),
            **{name: lambda text=text: self.s.sql(text).collect() for name, text in sql.items()},
        }

    def vacuum(self, table, hours):
        self.s.sql(f"vacuum delta.`{self.at(table)}` retain {hours} hours").collect()


class PyIceberg:
    """PyIceberg's table without a catalog. A table is the path or the URL of a metadata file."""

    def __init__(self):
        import pyiceberg
        from pyiceberg.table import StaticTable

        self.open = StaticTable.from_metadata
        self.properties = {}
        if where := os.environ.get("AWS_ENDPOINT_URL"):
            self.properties = {
                "s3.endpoint": where, "s3.region": os.environ["AWS_REGION"],
                "s3.access-key-id": os.environ["AWS_ACCESS_KEY_ID"], "s3.secret-access-key": os.environ["AWS_SECRET_ACCESS_KEY"],
            }
        self.versions = f"PyIceberg {pyiceberg.__version__}"

    def read(self, table, version):
        rows = self.open(table, self.properties).scan(snapshot_id=version).to_arrow()
        ids, sums = rows["id"].to_pylist(), rows["sum"].to_pylist()
        return [len(ids), min(ids, default=None), max(ids, default=None), sum(ids), len(set(ids)), sum(sums)]

    def rows(self, table):
        return self.open(table, self.properties).scan().to_arrow().to_pylist()

    def ids(self, table, where, expression):
        return self.open(table, self.properties).scan(row_filter=where).to_arrow()["id"].to_pylist()


class DuckDBIceberg:
    """DuckDB's extension, which reads the hint of a folder."""

    def __init__(self):
        import duckdb
        import duckdb_extension_avro
        import duckdb_extension_httpfs
        import duckdb_extension_iceberg

        self.c = duckdb.connect(config={"allow_unsigned_extensions": "true"})
        for package in [duckdb_extension_avro, duckdb_extension_httpfs, duckdb_extension_iceberg]:  # iceberg wants avro first
            self.c.load_extension(glob.glob(os.path.dirname(package.__file__) + "/extensions/**/*.duckdb_extension", recursive=True)[0])
        if where := os.environ.get("AWS_ENDPOINT_URL"):
            self.c.execute(
                "create secret (type s3, url_style 'path', use_ssl false, endpoint ?, region ?, key_id ?, secret ?)",
                [where.removeprefix("http://"), *(os.environ[n] for n in ["AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"])],
            )
        self.versions = f"DuckDB {duckdb.__version__} (iceberg)"

    def read(self, table, version):
        at = "" if version is None else f", snapshot_from_id={version}"
        return self.c.execute(f"select {COLUMNS} from iceberg_scan('{table}'{at})").fetchone()

    def rows(self, table):
        c = self.c.execute(f"select * from iceberg_scan('{table}')")
        names = [d[0] for d in c.description]
        return [dict(zip(names, row)) for row in c.fetchall()]

    def ids(self, table, where, expression):
        return [r[0] for r in self.c.execute(f"select id from iceberg_scan('{table}') where {where}").fetchall()]


ENGINES = {"delta-rs": DeltaRS, "polars": Polars, "duckdb": DuckDB, "pyiceberg-rest": PyIcebergREST, "spark": Spark, "pyiceberg": PyIceberg, "duckdb-iceberg": DuckDBIceberg}


def told(e):
    """An error on one line, without the stack of Java."""
    return " ".join(f"{type(e).__name__}: {e}".split("\n\tat ")[0].split())


def content(found):
    rows, least, most, ids, distinct, total = found
    return {"rows": rows, "least": least, "most": most, "ids": int(ids or 0), "distinct": distinct, "sum": float(total or 0)}


def answer(engine, do, table=None, version=None, hours=None, text=None, filters=None, file=None, first=None):
    if do == "read":
        return content(engine.read(table, version))
    if do == "rows":
        return sorted(({name: plain(v) for name, v in row.items()} for row in engine.rows(table)), key=lambda r: int(r["id"]))
    if do == "ids":  # of the rows that each filter finds
        return [sorted(engine.ids(table, f["SQL"], f["Polars"])) for f in filters]
    if do == "make":
        return engine.make(file, first)
    if do == "line":  # of Python, from docs/delta.md: how many rows it finds
        return engine.line(text).shape[0]
    if do == "commit":
        return engine.commit(table, first)
    if do in ["seen", "refused"]:
        return getattr(engine, do)(table)
    if do == "vacuum":
        return engine.vacuum(table, hours)
    if do == "write":
        ended = {}
        for name, what in engine.writes(table).items():
            try:
                what()
                ended[name] = "done"
            except Exception as e:
                ended[name] = told(e)
        return ended
    return engine.versions


def main():
    # Libraries print what they like.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    engine = ENGINES[sys.argv[1]]()
    if sys.argv[2:] == ["statement"]:  # as DuckDB's own command does it
        print(json.dumps(content(engine.statement(sys.stdin.read()))), file=out)
        return
    for line in sys.stdin:
        try:
            said = {"answer": answer(engine, **json.loads(line))}
        except Exception as e:
            said = {"error": told(e)}
        print(json.dumps(said), file=out, flush=True)


with contextlib.suppress(BrokenPipeError):
    main()
