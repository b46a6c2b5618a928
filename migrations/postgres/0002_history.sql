-- What is known of the history of a coordinator that is not in this database; one row, or none.
CREATE TABLE coordinator_history (
    one     boolean PRIMARY KEY DEFAULT true CHECK (one),
    history jsonb   NOT NULL
);

-- {} → the history, or null. The lock makes the transaction one that is waited for until the standby has it:
-- a primary whose standby took over answers mere reads with what it knew then, and would let a store look older
-- than the coordinator that is not.
CREATE FUNCTION fencegate_history(asked jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    known jsonb;
BEGIN
    SELECT history INTO known FROM coordinator_history FOR UPDATE;
    RETURN coalesce(known, 'null');
END $$;

-- {known: the history or null, new: the one to come} → whether `known` still stood, and is replaced
CREATE FUNCTION fencegate_replace_history(asked jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF asked -> 'known' = 'null' THEN
        INSERT INTO coordinator_history (history) VALUES (asked -> 'new') ON CONFLICT DO NOTHING;
    ELSE
        UPDATE coordinator_history SET history = asked -> 'new' WHERE history = asked -> 'known';
    END IF;
    RETURN to_jsonb(FOUND);
END $$;

-- Makes a page of marks unconfirmed, in the order of their names: {after, limit} → the last name, or null if
-- there was none
CREATE FUNCTION fencegate_distrust(asked jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    last text;
BEGIN
    SELECT max(resource) INTO last FROM (
        SELECT resource FROM fences WHERE resource > (asked ->> 'after')
        ORDER BY resource LIMIT (asked ->> 'limit')::bigint
        FOR UPDATE
    ) AS page;
    UPDATE fences SET confirmed = false
    WHERE resource > (asked ->> 'after') AND resource <= last AND confirmed;
    RETURN coalesce(to_jsonb(last), 'null');
END $$;

-- [{resource, epoch, token, confirmed, owner}]: marks of present holders, without a grant
CREATE FUNCTION fencegate_confirm(asked jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM fencegate_raise_marks(asked);
    RETURN 'null';
END $$;

-- {} → whether no mark was ever raised
CREATE FUNCTION fencegate_is_empty(asked jsonb) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT to_jsonb(NOT EXISTS (SELECT FROM fences))
$$;
