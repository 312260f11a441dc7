"""Columns of the clusters that one job could be trained on, and of what `allocator spot` fits."""

from allocator.domain.schema.columns import Column, ColumnKind, read_tables

TABLES = read_tables("spot")
CLUSTERS, POINTS, LIFETIMES, HAZARDS, SPEEDS, SERVER_SPEEDS, FEATURES = TABLES.values()
FEATURE = Column("", ColumnKind.NUMBER, "a feature", required=True, above=0)
"""What other columns of FEATURES hold."""
OF_CLUSTER = (
    "servers_per_hour",
    "cap_per_s",
    "cap_sharpness",
    "measured_per_s",
    "checkpoint_s",
    "checkpoint_every_s",
    "synchronous",
    "quality",
)
"""Columns that belong to the cluster: its rows may leave them empty, but not differ."""
