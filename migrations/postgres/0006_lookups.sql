-- Each grant and each mark is looked up by its whole key, whatever the server believes of the size of its tables. It
-- plans while they are small and keeps the plan while they grow; then a join reads all grants of an instance for each
-- one that is asked for, those that are deleted and not vacuumed yet as well.

-- The index is replaced once nobody reads the table. Raises wait behind this, so not for long: it can be tried again.
SET LOCAL lock_timeout = '3s';

-- By an expression, so that only those find their rows through it who want all grants of an instance.
DROP INDEX grants_by_instance;
CREATE INDEX grants_of_instance ON grants ((instance + 0));

-- Entries of deleted grants are marked as such by those who meet them, but not in the scans that this switches off: there
-- each raise would meet the past grants of other instances anew until they are vacuumed.
ALTER FUNCTION fencegate_raise(jsonb) SET enable_bitmapscan = off;
ALTER FUNCTION fencegate_elsewhere(jsonb) SET enable_bitmapscan = off;

-- The rest as before.

CREATE OR REPLACE FUNCTION fencegate_raise_many(me bigint, raises jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE
    SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    every fencegate_asked[] :=
        ARRAY(SELECT r FROM jsonb_populate_recordset(NULL::fencegate_asked, raises) AS r);
    marked fencegate_marked[];
    older  jsonb;   -- grants of others below the marks
    names  text[];  -- of their resources
BEGIN
    -- Every row is locked, also where nothing is raised, and in one order: see `fencegate_raise_marks`.
    INSERT INTO fences (resource, epoch, token, confirmed, owner)
    SELECT DISTINCT ON (resource COLLATE "C") resource, epoch, token, confirmed, owner
    FROM unnest(every) AS r
    ORDER BY resource COLLATE "C", epoch DESC, token DESC, confirmed DESC
    ON CONFLICT (resource) DO UPDATE SET
        epoch = excluded.epoch, token = excluded.token, confirmed = excluded.confirmed,
        owner = excluded.owner, updated_at = now()
    WHERE (excluded.epoch, excluded.token, excluded.confirmed)
        > (fences.epoch, fences.token, fences.confirmed);

    -- Each statement from here on sees what was committed while the one above waited for its locks. In one
    -- statement with it, grants that were recorded meanwhile would not be seen. The marks are locked, so what is
    -- read of them here holds to the end.
    marked := ARRAY(
        SELECT ROW(r.nth, r.resource, f.epoch, f.token, f.confirmed, (r.epoch, r.token) = (f.epoch, f.token),
            r.settle_ms, r.number, r.drain_ms)::fencegate_marked
        FROM unnest(every) AS r
        CROSS JOIN LATERAL (SELECT * FROM fences WHERE resource = r.resource OFFSET 0) AS f);

    INSERT INTO grants (resource, epoch, token, instance, settle_ms, number)
    SELECT resource, epoch, token, me, max(m.settle_ms), max(m.number)
    FROM unnest(marked) AS m
    WHERE m.is_asked AND m.settle_ms IS NOT NULL
    GROUP BY resource, epoch, token
    ORDER BY resource COLLATE "C"
    ON CONFLICT (resource, instance, epoch, token) DO UPDATE
        SET settle_ms = greatest(grants.settle_ms, excluded.settle_ms),
            number = greatest(grants.number, excluded.number);

    WITH newest AS (
        SELECT resource, m.epoch, m.token, min(m.drain_ms) FILTER (WHERE m.is_asked) AS drain_ms
        FROM unnest(marked) AS m
        GROUP BY resource, m.epoch, m.token
    )
    SELECT jsonb_agg(jsonb_build_object('resource', g.resource, 'epoch', g.epoch, 'token', g.token,
        'instance', g.instance, 'drain_ms', n.drain_ms)), array_agg(g.resource)
    INTO older, names
    FROM newest n CROSS JOIN LATERAL (
        SELECT * FROM grants g WHERE g.resource = n.resource AND g.instance < me
        UNION ALL
        SELECT * FROM grants g WHERE g.resource = n.resource AND g.instance > me
    ) AS g
    WHERE (g.epoch, g.token) < (n.epoch, n.token);
    IF older IS NOT NULL THEN
        PERFORM fencegate_revoke(older);
    END IF;

    RETURN (
        SELECT jsonb_agg(jsonb_build_array(m.epoch, m.token, m.confirmed,
            coalesce(m.resource = ANY (names), false)) ORDER BY m.nth)
        FROM unnest(marked) AS m
    );
END $$;

CREATE OR REPLACE FUNCTION fencegate_revoke(older jsonb) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    its     record;
    revoked grants;
    mark    fences;
BEGIN
    -- In one order, as in `fencegate_delete`.
    FOR its IN
        SELECT * FROM jsonb_to_recordset(older)
            AS o (resource text, epoch bigint, token bigint, instance bigint, drain_ms bigint)
        ORDER BY o.resource COLLATE "C", o.epoch, o.token, o.instance
    LOOP
        UPDATE grants g SET revoked = true, drain_ms = least(g.drain_ms, its.drain_ms)
        WHERE g.resource = its.resource AND g.instance = its.instance
            AND g.epoch = its.epoch AND g.token = its.token
            AND (NOT g.revoked OR g.drain_ms > its.drain_ms
                OR g.drain_ms IS NULL AND its.drain_ms IS NOT NULL)
        RETURNING g.* INTO revoked;
        CONTINUE WHEN NOT FOUND;
        SELECT * INTO mark FROM fences f WHERE f.resource = its.resource;
        PERFORM pg_notify('fencegate', 'revoked:' || revoked.instance || ':' || jsonb_build_array(
            revoked.resource, revoked.epoch, revoked.token, revoked.number,
            jsonb_build_array(mark.epoch, mark.token, mark.confirmed), revoked.drain_ms)::text);
    END LOOP;
END $$;

CREATE OR REPLACE FUNCTION fencegate_delete(asked jsonb) RETURNS void LANGUAGE plpgsql VOLATILE
    SET enable_seqscan = off
AS $$
DECLARE
    me         bigint := (asked ->> 'instance')::bigint;
    due        tid[];
    waited_for text[];
BEGIN
    -- Locked in one order, so that no two that change several grants wait for each other.
    due := ARRAY(
        SELECT g.ctid
        FROM (
            SELECT * FROM jsonb_to_recordset(asked -> 'grants')
                AS r (resource text, epoch bigint, token bigint, number bigint)
            ORDER BY r.resource COLLATE "C", r.epoch, r.token
        ) AS r
        CROSS JOIN LATERAL (
            SELECT g.ctid FROM grants g
            WHERE g.resource = r.resource AND g.instance = me AND g.epoch = r.epoch
                AND g.token = r.token AND g.number = r.number
            FOR UPDATE
        ) AS g);
    -- A statement of its own sees those as well that were revoked while the one above waited for their locks.
    WITH deleted AS (
        DELETE FROM grants WHERE ctid = ANY (due) RETURNING resource, revoked
    )
    SELECT array_agg(DISTINCT resource) FILTER (WHERE revoked) INTO waited_for FROM deleted;
    PERFORM pg_notify('fencegate', 'given_back:' || resource) FROM unnest(waited_for) AS resource;
END $$;

-- Answers how many it found. One that was recorded anew meanwhile stays, and is the next call's.
CREATE OR REPLACE FUNCTION fencegate_give_back_all_but(asked jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE
    SET enable_seqscan = off
    SET enable_bitmapscan = off  -- else each page would meet all that were deleted with the pages before
AS $$
DECLARE
    me  bigint := (asked ->> 'instance')::bigint;
    few jsonb;
BEGIN
    SELECT coalesce(jsonb_agg(g), '[]') INTO few FROM (
        SELECT resource, epoch, token, number FROM grants
        WHERE instance + 0 = me AND (resource, epoch, token) NOT IN (
            SELECT resource, epoch, token FROM jsonb_to_recordset(asked -> 'keep')
                AS k (resource text, epoch bigint, token bigint))
        LIMIT 5000
    ) AS g;
    PERFORM fencegate_delete(jsonb_build_object('instance', me, 'grants', few));
    RETURN to_jsonb(jsonb_array_length(few));
END $$;

CREATE OR REPLACE FUNCTION fencegate_bury(asked jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE
    SET enable_seqscan = off
    SET enable_bitmapscan = off     -- as above
    SET enable_indexonlyscan = off  -- through the key, which has the instance in it, that would be a look at every grant
AS $$
DECLARE
    its_id bigint := (asked ->> 'instance')::bigint;
    few    jsonb;
BEGIN
    -- Whoever records what is left of a run has this lock as well: else that could be left without a row, and
    -- nobody would ever bury it.
    PERFORM FROM instances WHERE id = its_id AND fenced FOR UPDATE;
    IF NOT FOUND THEN
        RETURN '0';
    END IF;
    SELECT coalesce(jsonb_agg(g), '[]') INTO few FROM (
        SELECT resource, epoch, token, number FROM grants
        WHERE instance + 0 = its_id AND settle_ms <= (asked ->> 'settle_ms')::bigint
        LIMIT 5000
        FOR UPDATE SKIP LOCKED
    ) AS g;
    PERFORM fencegate_delete(jsonb_build_object('instance', its_id, 'grants', few));
    DELETE FROM instances
    WHERE id = its_id AND NOT EXISTS (SELECT FROM grants WHERE instance + 0 = its_id);
    RETURN to_jsonb(jsonb_array_length(few));
END $$;

CREATE OR REPLACE FUNCTION fencegate_look(asked jsonb) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object(
        'server', fencegate_server(),
        'revoked', (
            SELECT coalesce(jsonb_agg(line), '[]')
            FROM (
                SELECT jsonb_build_array(g.resource, g.epoch, g.token, g.number,
                    jsonb_build_array(f.epoch, f.token, f.confirmed), g.drain_ms) AS line
                FROM grants g
                CROSS JOIN LATERAL (SELECT * FROM fences WHERE resource = g.resource OFFSET 0) AS f
                WHERE g.instance = (asked ->> 'instance')::bigint AND g.revoked
                LIMIT 5000
            ) AS few
        ),
        'others', (
            SELECT coalesce(jsonb_agg(jsonb_build_array(id, renewals, ttl_ms, fenced)), '[]')
            FROM instances WHERE id <> (asked ->> 'instance')::bigint
        ))
$$;

CREATE OR REPLACE FUNCTION fencegate_assert(asked jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE
    SET enable_seqscan = off
AS $$
DECLARE
    me bigint := (asked ->> 'instance')::bigint;
    is_member boolean := fencegate_is_member(me);
BEGIN
    PERFORM fencegate_raise_marks(asked -> 'marks');
    IF is_member THEN
        INSERT INTO grants (resource, epoch, token, instance, settle_ms, number, revoked)
        SELECT a.resource, a.epoch, a.token, me, a.settle_ms, a.number,
            (a.epoch, a.token) < (f.epoch, f.token)
        FROM jsonb_to_recordset(asked -> 'grants')
            AS a (resource text, epoch bigint, token bigint, settle_ms bigint, number bigint)
        CROSS JOIN LATERAL (SELECT * FROM fences WHERE resource = a.resource OFFSET 0) AS f
        ORDER BY a.resource COLLATE "C", a.epoch, a.token
        ON CONFLICT (resource, instance, epoch, token) DO UPDATE
            SET settle_ms = greatest(grants.settle_ms, excluded.settle_ms),
                number = greatest(grants.number, excluded.number),
                revoked = grants.revoked OR excluded.revoked;
    END IF;
    RETURN jsonb_build_object('server', fencegate_server(), 'member', is_member);
END $$;

CREATE OR REPLACE FUNCTION fencegate_load_with_times(asked jsonb) RETURNS jsonb LANGUAGE plpgsql STABLE
    SET enable_seqscan = off
AS $$
BEGIN
    RETURN (
        SELECT coalesce(jsonb_agg(jsonb_build_array(f.resource, f.epoch, f.token, f.confirmed,
            floor(extract(epoch FROM f.updated_at) * 1000)::bigint)), '[]')
        FROM jsonb_array_elements_text(asked -> 'resources') AS name
        CROSS JOIN LATERAL (SELECT * FROM fences WHERE resource = name OFFSET 0) AS f);
END $$;

CREATE OR REPLACE FUNCTION fencegate_left(asked jsonb) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object(
        'count', (
            SELECT count(*) FROM instances i
            CROSS JOIN LATERAL (SELECT FROM grants WHERE instance + 0 = i.id OFFSET 0) AS g
            WHERE i.fenced
        ),
        'left', (
            SELECT coalesce(jsonb_agg(line), '[]')
            FROM (
                SELECT jsonb_build_array(g.resource, g.epoch, g.token, g.settle_ms, g.instance) AS line
                FROM instances i
                CROSS JOIN LATERAL (SELECT * FROM grants WHERE instance + 0 = i.id OFFSET 0) AS g
                WHERE i.fenced
                LIMIT (asked ->> 'limit')::bigint
            ) AS few
        ))
$$;
