-- The coordinator's histories, counted from 1: a token of a later one is above all of an earlier one.
ALTER TABLE fences ADD COLUMN epoch INTEGER NOT NULL DEFAULT 1;

CREATE TABLE grants_of_epochs (
    resource  TEXT    NOT NULL,
    epoch     INTEGER NOT NULL,
    token     INTEGER NOT NULL,
    instance  INTEGER NOT NULL,
    settle_ms INTEGER NOT NULL,
    PRIMARY KEY (resource, epoch, token)
) STRICT, WITHOUT ROWID;

INSERT INTO grants_of_epochs (resource, epoch, token, instance, settle_ms)
    SELECT resource, 1, token, instance, settle_ms FROM grants;

DROP TABLE grants;
ALTER TABLE grants_of_epochs RENAME TO grants;

CREATE INDEX grants_by_instance ON grants (instance);
