-- What is known of the history of a coordinator that is not in this file; one row, or none.
CREATE TABLE coordinator_history (
    only       INTEGER PRIMARY KEY CHECK (only = 1),
    epoch      INTEGER NOT NULL,
    id         TEXT    NOT NULL,
    -- Unsigned, hence a text.
    cluster_id TEXT    NOT NULL,
    revision   INTEGER NOT NULL,
    nonce      TEXT    NOT NULL,
    sentinel   INTEGER NOT NULL,
    next       TEXT
) STRICT;
