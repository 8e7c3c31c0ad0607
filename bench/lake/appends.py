"""The arm of delta-rs in the measure of speed: appends rows that are in memory to a Delta table.

For each line of its input it makes a new table, and answers with a line of JSON, as the arms of
examples/kafka-lake/speed_test.go do.
"""

import argparse
import glob
import json
import os
import resource
import shutil
import sys
import tempfile
import time

os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[-1]})  # one core, also for its threads

from arro3.core import Array, DataType, Table
from deltalake import WriterProperties, write_deltalake

args = argparse.ArgumentParser()
args.add_argument("--dir")
args.add_argument("--rows", type=int, default=400_000)
args.add_argument("--files", type=int, default=4)
args = args.parse_args()


def mix(n):
    n = (n + 1) * 0x9E3779B97F4A7C15 & M
    n = (n ^ n >> 30) * 0xBF58476D1CE4E5B9 & M
    n = (n ^ n >> 27) * 0x94D049BB133111EB & M
    return n ^ n >> 31


M = (1 << 64) - 1


def message(n):
    """Returns time, key and value, as speedMessage of examples/kafka-lake/speed_test.go does."""
    x, y, at = mix(n), mix(n + (1 << 40)), 1_700_000_000_000 + n // 100
    customer, price = y % 100_000, 10_000 + (y >> 36) % 89_900
    value = (x >> 16, 100_000 + customer, 10_000 + (y >> 20) % 10_000, price // 100, price % 100, at)
    return at * 1000, b"customer-%05d" % customer, b'{"order":"%012x","customer":%d,"item":%d,"price":%d.%02d,"in":"EUR","at":%d}' % value


def processor():
    u = resource.getrusage(resource.RUSAGE_SELF)
    return u.ru_utime + u.ru_stime


in_file = args.rows // args.files
size = 0
parts = []
for i in range(args.files):
    times, keys, values = zip(*map(message, range(i * in_file, (i + 1) * in_file)))
    size += sum(map(len, keys)) + sum(map(len, values))
    parts.append(
        Table.from_pydict(
            {
                "kafka_partition": Array([i] * in_file, type=DataType.int32()),
                "kafka_offset": Array(list(range(in_file)), type=DataType.int64()),
                "kafka_time": Array(list(times), type=DataType.int64()).cast(DataType.timestamp("us", tz="UTC")),
                "key": Array(list(keys), type=DataType.binary()),
                "value": Array(list(values), type=DataType.binary()),
            }
        )
    )
    del times, keys, values

# parquet-go's level of Zstandard is 3 too.
properties = WriterProperties(compression="ZSTD", compression_level=3)
for _ in sys.stdin:
    folder = tempfile.mkdtemp(dir=args.dir)
    begun, spent = time.perf_counter(), processor()
    for part in parts:
        write_deltalake(folder, part, mode="append", writer_properties=properties)
    took = {"seconds": time.perf_counter() - begun, "processor": processor() - spent, "bytes": size}
    files = glob.glob(folder + "/**/*.parquet", recursive=True)
    took |= {"kept": sum(map(os.path.getsize, files)), "files": len(files)}
    print(json.dumps(took), flush=True)
    shutil.rmtree(folder)
