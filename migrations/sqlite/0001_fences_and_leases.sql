-- The high-water marks. A row is raised, never lowered, never deleted.
CREATE TABLE fences (
    resource   TEXT    NOT NULL PRIMARY KEY,
    token      INTEGER NOT NULL CHECK (token > 0),
    confirmed  INTEGER NOT NULL,  -- 1: the coordinator named the token as the holder's
    owner      TEXT,
    updated_at INTEGER NOT NULL   -- ms since 1970
) STRICT, WITHOUT ROWID;

-- One row per run of the gateway.
CREATE TABLE instances (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    started_at INTEGER NOT NULL
) STRICT;

-- An instance's right to admit writes of one token. A row of an instance that is gone is the sign
-- that writes of this token may still be under way.
CREATE TABLE grants (
    resource  TEXT    NOT NULL,
    token     INTEGER NOT NULL,
    instance  INTEGER NOT NULL,
    settle_ms INTEGER NOT NULL,
    PRIMARY KEY (resource, token)
) STRICT, WITHOUT ROWID;

-- Numbers of instances grow: the rows of those that are gone are a range of this index.
CREATE INDEX grants_by_instance ON grants (instance);

-- Live leases of the embedded coordinator.
CREATE TABLE leases (
    resource    TEXT    NOT NULL PRIMARY KEY,
    owner       TEXT    NOT NULL,
    token       INTEGER NOT NULL,
    ttl_ms      INTEGER NOT NULL,
    acquired_at INTEGER NOT NULL,
    expires_at  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX leases_by_expiry ON leases (expires_at);

-- The last token that was issued. It outlives every lease: a token is issued once.
CREATE TABLE token_sequence (
    only INTEGER NOT NULL PRIMARY KEY CHECK (only = 1),
    last INTEGER NOT NULL
) STRICT;

INSERT INTO token_sequence (only, last) VALUES (1, 0);
