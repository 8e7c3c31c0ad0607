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


def message(n):
    return b'{"order":%d,"customer":%d,"item":"item number %d","price":%d.%02d,"currency":"EUR"}' % (n, n % 997, n * 7919 % 10007, n % 500, n % 100)


def processor():
    u = resource.getrusage(resource.RUSAGE_SELF)
    return u.ru_utime + u.ru_stime


in_file = args.rows // args.files
size = 0
parts = []
for i in range(args.files):
    ids = range(i * in_file, (i + 1) * in_file)
    keys, values = [b"customer-%d" % (n % 997) for n in ids], [message(n) for n in ids]
    size += sum(map(len, keys)) + sum(map(len, values))
    parts.append(
        Table.from_pydict(
            {
                "kafka_partition": Array([0] * in_file, type=DataType.int32()),
                "kafka_offset": Array(list(ids), type=DataType.int64()),
                "kafka_time": Array([1_700_000_000_000_000 + n // 100 * 1000 for n in ids], type=DataType.int64()).cast(DataType.timestamp("us", tz="UTC")),
                "key": Array(keys, type=DataType.binary()),
                "value": Array(values, type=DataType.binary()),
            }
        )
    )

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
