"""The reader of the measure of the lag: delta-rs loads a table, and looks for the next version in a loop.

    follow.py make FILE   writes the Parquet file that is committed again and again
    follow.py TABLE       prints the version, and how many files it has, each time that there is a new one
"""

import sys

if sys.argv[1] == "make":
    import polars as pl

    pl.DataFrame({"id": pl.Series(range(1000), dtype=pl.Int64)}).write_parquet(sys.argv[2])
    sys.exit()

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

table, seen = None, -1
while True:
    if table is None:
        try:
            table = DeltaTable(sys.argv[1])
        except TableNotFoundError:
            continue
    else:
        table.update_incremental()
    if table.version() > seen:
        seen = table.version()
        print(seen, len(table.file_uris()), flush=True)
