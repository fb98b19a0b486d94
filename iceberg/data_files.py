"""Writes rows as the data files of a table, each row copied once.

pyiceberg filters all rows once for each partition, which takes longer than writing a few ten thousand rows.
"""

import itertools
import uuid
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import pyarrow_to_schema, write_file
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField, PartitionFieldValue, PartitionKey
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties, WriteTask
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.utils.properties import property_as_int

__all__ = ["write_data_files"]


def write_data_files(table: Table, rows: pa.Table) -> list[DataFile]:
    """No reader sees the files before a commit names them. A commit must begin after this returns: it copies the
    table's metadata, which the writing threads change.
    """
    metadata = table.metadata
    schema = pyarrow_to_schema(
        rows.schema, name_mapping=metadata.schema().name_mapping, format_version=metadata.format_version
    )
    file_bytes = property_as_int(
        metadata.properties,
        TableProperties.WRITE_TARGET_FILE_SIZE_BYTES,
        TableProperties.WRITE_TARGET_FILE_SIZE_BYTES_DEFAULT,
    )
    file_rows = max(1, int(file_bytes or 0) * rows.num_rows // max(1, rows.nbytes))
    write_id, numbers = uuid.uuid4(), itertools.count()
    tasks = (
        WriteTask(
            write_uuid=write_id, task_id=next(numbers), schema=schema, record_batches=[batch], partition_key=partition
        )
        for partition, own in _by_partition(metadata, rows.combine_chunks())
        for batch in own.to_batches(max_chunksize=file_rows)
    )
    return list(write_file(table.io, metadata, tasks))


def _by_partition(metadata: TableMetadata, rows: pa.Table) -> Iterator[tuple[PartitionKey | None, pa.Table]]:
    """The rows of each partition, in the order in which they come."""
    spec, schema = metadata.spec(), metadata.schema()
    if spec.is_unpartitioned():
        yield None, rows
        return
    columns = [_partition_values(field, rows, schema) for field in spec.fields]
    number = np.zeros(rows.num_rows, np.int64)
    for column in columns:
        encoded = column.dictionary_encode(null_encoding="encode")
        number = number * len(encoded.dictionary) + encoded.indices.to_numpy()
    order = pc.sort_indices(pa.array(number))
    in_order = rows.take(order)
    _, firsts = np.unique(number[order.to_numpy()], return_index=True)
    for first, stop in pairwise([*firsts.tolist(), rows.num_rows]):
        own = order[first].as_py()
        values = [
            PartitionFieldValue(*part) for part in zip(spec.fields, (c[own].as_py() for c in columns), strict=True)
        ]
        yield PartitionKey(values, spec, schema), in_order.slice(first, stop - first)


def _partition_values(field: PartitionField, rows: pa.Table, schema: Schema) -> pa.Array:
    source = schema.find_field(field.source_id)
    transform = field.transform.pyarrow_transform(source.field_type)
    column = rows[source.name].combine_chunks()
    if not pa.types.is_large_string(column.type):
        return transform(column)
    # Many rows share a few texts.
    encoded = column.dictionary_encode()
    return transform(encoded.dictionary).take(encoded.indices)
