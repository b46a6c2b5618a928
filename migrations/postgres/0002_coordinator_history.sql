-- What is known of the coordinator's history: one row, or none before the first contact.
CREATE TABLE coordinator_history (
    single     boolean PRIMARY KEY DEFAULT true CHECK (single),
    epoch      bigint  NOT NULL CHECK (epoch > 0),
    id         text    NOT NULL,
    cluster_id text    NOT NULL,
    revision   bigint  NOT NULL,
    nonce      text    NOT NULL,
    sentinel   bigint  NOT NULL,
    next       text
);

-- → the row, or null
CREATE FUNCTION fencegate_history(asked jsonb) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT coalesce((SELECT to_jsonb(h) - 'single' FROM coordinator_history h), 'null')
$$;

-- {known, new, distrust} → whether `known` still stood, so that `new` is in its place
CREATE FUNCTION fencegate_replace_history(asked jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    -- Comparing and writing are one step for all instances, also while there is no row to lock.
    LOCK TABLE coordinator_history IN SHARE ROW EXCLUSIVE MODE;
    IF fencegate_history('{}') <> asked -> 'known' THEN
        RETURN 'false';
    END IF;
    DELETE FROM coordinator_history;
    INSERT INTO coordinator_history (epoch, id, cluster_id, revision, nonce, sentinel, next)
    SELECT epoch, id, cluster_id, revision, nonce, sentinel, next
    FROM jsonb_to_record(asked -> 'new') AS n (epoch bigint, id text, cluster_id text,
        revision bigint, nonce text, sentinel bigint, next text);
    IF (asked ->> 'distrust')::boolean THEN
        UPDATE fences SET confirmed = false WHERE confirmed;
    END IF;
    RETURN 'true';
END $$;

-- → whether no mark was ever raised
CREATE FUNCTION fencegate_is_empty(asked jsonb) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT to_jsonb(NOT EXISTS (SELECT FROM fences))
$$;
