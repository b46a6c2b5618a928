-- What workers wait for, in less time.

-- Which server answers, and which of its lives: after a fail-over, a restart or a restored backup it is
-- another one. Two servers do not start in the same microsecond, so it needs no name of the cluster, for which
-- the server would read a file each time. Fails on a standby. Volatile, as what it calls is: else it would be
-- parsed anew in each transaction instead of becoming part of the plan of its caller.
CREATE OR REPLACE FUNCTION fencegate_server() RETURNS text LANGUAGE sql VOLATILE AS $$
    SELECT left(pg_walfile_name(pg_current_wal_lsn()), 8)
        || '/' || extract(epoch FROM pg_postmaster_start_time())
$$;

-- What is asked in a raise. To read it out of its JSON is a third of the work on it, so that is done once.
CREATE TYPE fencegate_asked AS (
    nth       integer,
    resource  text,
    epoch     bigint,
    token     bigint,
    confirmed boolean,
    owner     text,
    settle_ms bigint,
    number    bigint,
    drain_ms  bigint
);

-- Several raises at once: [{nth, resource, epoch, token, confirmed, owner, settle_ms, number, drain_ms}] →
-- [[epoch, token, confirmed, elsewhere]], in their order. One statement for all is the least work for each.
CREATE FUNCTION fencegate_raise_many(me bigint, raises jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE
    SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    every fencegate_asked[] :=
        ARRAY(SELECT r FROM jsonb_populate_recordset(NULL::fencegate_asked, raises) AS r);
    older jsonb;   -- grants of others below the marks
    names text[];  -- of their resources
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
    -- statement with it, grants that were recorded meanwhile would not be seen.
    INSERT INTO grants (resource, epoch, token, instance, settle_ms, number)
    SELECT resource, epoch, token, me, max(r.settle_ms), max(r.number)
    FROM unnest(every) AS r JOIN fences f USING (resource, epoch, token)
    WHERE r.settle_ms IS NOT NULL
    GROUP BY resource, epoch, token
    ORDER BY resource COLLATE "C"
    ON CONFLICT (resource, instance, epoch, token) DO UPDATE
        SET settle_ms = greatest(grants.settle_ms, excluded.settle_ms),
            number = greatest(grants.number, excluded.number);

    WITH newest AS (
        SELECT resource, f.epoch, f.token,
            min(r.drain_ms) FILTER (WHERE (r.epoch, r.token) = (f.epoch, f.token)) AS drain_ms
        FROM unnest(every) AS r JOIN fences f USING (resource)
        GROUP BY resource, f.epoch, f.token
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
        SELECT jsonb_agg(jsonb_build_array(f.epoch, f.token, f.confirmed,
            coalesce(f.resource = ANY (names), false)) ORDER BY r.nth)
        FROM unnest(every) AS r JOIN fences f USING (resource)
    );
END $$;

-- A raise that comes alone, which is the usual one and which a worker waits for: the same in plain statements, which
-- take half the time to start.
CREATE FUNCTION fencegate_raise_one(me bigint, raise jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    its_resource text   := raise ->> 'resource';
    its_epoch    bigint := (raise ->> 'epoch')::bigint;
    its_token    bigint := (raise ->> 'token')::bigint;
    its_settle   bigint := (raise ->> 'settle_ms')::bigint;
    mark         fences;
    is_elsewhere boolean;
BEGIN
    -- The row is locked, also where nothing is raised: see `fencegate_raise_marks`.
    INSERT INTO fences (resource, epoch, token, confirmed, owner)
    VALUES (its_resource, its_epoch, its_token, (raise ->> 'confirmed')::boolean, raise ->> 'owner')
    ON CONFLICT (resource) DO UPDATE SET
        epoch = excluded.epoch, token = excluded.token, confirmed = excluded.confirmed,
        owner = excluded.owner, updated_at = now()
    WHERE (excluded.epoch, excluded.token, excluded.confirmed)
        > (fences.epoch, fences.token, fences.confirmed)
    RETURNING * INTO mark;
    IF NOT FOUND THEN
        SELECT * INTO mark FROM fences WHERE resource = its_resource;
    END IF;

    IF its_settle IS NOT NULL AND its_epoch = mark.epoch AND its_token = mark.token THEN
        INSERT INTO grants (resource, epoch, token, instance, settle_ms, number)
        VALUES (its_resource, its_epoch, its_token, me, its_settle, (raise ->> 'number')::bigint)
        ON CONFLICT (resource, instance, epoch, token) DO UPDATE
            SET settle_ms = greatest(grants.settle_ms, excluded.settle_ms),
                number = greatest(grants.number, excluded.number);
    END IF;

    is_elsewhere :=
        EXISTS (SELECT FROM grants g
            WHERE g.resource = its_resource AND g.instance < me
                AND (g.epoch, g.token) < (mark.epoch, mark.token))
        OR EXISTS (SELECT FROM grants g
            WHERE g.resource = its_resource AND g.instance > me
                AND (g.epoch, g.token) < (mark.epoch, mark.token));
    IF is_elsewhere THEN
        PERFORM fencegate_revoke((
            SELECT jsonb_agg(jsonb_build_object('resource', g.resource, 'epoch', g.epoch,
                'token', g.token, 'instance', g.instance, 'drain_ms',
                CASE WHEN its_epoch = mark.epoch AND its_token = mark.token
                    THEN (raise ->> 'drain_ms')::bigint END))
            FROM grants g
            WHERE g.resource = its_resource AND g.instance <> me
                AND (g.epoch, g.token) < (mark.epoch, mark.token)));
    END IF;
    RETURN jsonb_build_array(jsonb_build_array(mark.epoch, mark.token, mark.confirmed, is_elsewhere));
END $$;

-- One batch of raises: {instance, raises: [{nth, resource, epoch, token, confirmed, owner, settle_ms,
-- number, drain_ms}]}. Answers {server, member, raised: [[epoch, token, confirmed, elsewhere]]}, in their order.
--
-- Never over whole tables: a plan that was made while they were empty would be kept while they grow.
CREATE OR REPLACE FUNCTION fencegate_raise(asked jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE
    SET enable_seqscan = off
AS $$
DECLARE
    me     bigint := (asked ->> 'instance')::bigint;
    raises jsonb  := asked -> 'raises';
    raised jsonb;
BEGIN
    -- With an older snapshot the statements after a lock would not see what was committed while it was waited for.
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'marks are raised under READ COMMITTED only';
    END IF;
    -- As in `fencegate_is_member`.
    PERFORM FROM instances i WHERE i.id = me AND NOT i.fenced FOR KEY SHARE;
    IF NOT FOUND THEN
        RETURN jsonb_build_object('server', fencegate_server(), 'member', false);
    END IF;
    IF jsonb_array_length(raises) = 1 THEN
        raised := fencegate_raise_one(me, raises -> 0);
    ELSE
        raised := fencegate_raise_many(me, raises);
    END IF;
    RETURN jsonb_build_object('server', fencegate_server(), 'member', true, 'raised', raised);
END $$;

-- As before, but a notification says which grant it is about, so that whoever has it need not look first. A
-- resource's name has at most 1,024 bytes, so it never comes near the 8,000 that a notification may have.
CREATE OR REPLACE FUNCTION fencegate_revoke(older jsonb) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    told record;
BEGIN
    FOR told IN
        WITH due AS (
            SELECT g.resource, g.epoch, g.token, g.instance, o.drain_ms
            FROM jsonb_to_recordset(older)
                AS o (resource text, epoch bigint, token bigint, instance bigint, drain_ms bigint)
            JOIN grants g USING (resource, instance, epoch, token)
            WHERE NOT g.revoked OR g.drain_ms > o.drain_ms
                OR g.drain_ms IS NULL AND o.drain_ms IS NOT NULL
            ORDER BY g.resource, g.epoch, g.token, g.instance
            FOR UPDATE OF g
        ), revoked AS (
            UPDATE grants g SET revoked = true, drain_ms = least(g.drain_ms, d.drain_ms)
            FROM due d
            WHERE (g.resource, g.instance, g.epoch, g.token)
                = (d.resource, d.instance, d.epoch, d.token)
            RETURNING g.*
        )
        SELECT r.instance, jsonb_build_array(resource, r.epoch, r.token, r.number,
            jsonb_build_array(f.epoch, f.token, f.confirmed), r.drain_ms)::text AS what
        FROM revoked r JOIN fences f USING (resource)
    LOOP
        PERFORM pg_notify('fencegate', 'revoked:' || told.instance || ':' || told.what);
    END LOOP;
END $$;

-- The next two as before, but not in the language whose functions are planned anew at each call.

-- {instance, asked: [{nth, resource, epoch, token}]} → {server, elsewhere: [whether others have grants below]}
CREATE OR REPLACE FUNCTION fencegate_elsewhere(asked jsonb) RETURNS jsonb LANGUAGE plpgsql STABLE
    SET enable_seqscan = off
AS $$
DECLARE
    me bigint := (asked ->> 'instance')::bigint;
BEGIN
    RETURN jsonb_build_object('server', fencegate_server(), 'elsewhere', (
        SELECT jsonb_agg(
            EXISTS (SELECT FROM grants g
                WHERE g.resource = r.resource AND g.instance < me
                    AND (g.epoch, g.token) < (r.epoch, r.token))
            OR EXISTS (SELECT FROM grants g
                WHERE g.resource = r.resource AND g.instance > me
                    AND (g.epoch, g.token) < (r.epoch, r.token))
            ORDER BY r.nth)
        FROM jsonb_to_recordset(asked -> 'asked')
            AS r (nth bigint, resource text, epoch bigint, token bigint)));
END $$;

-- {resources: [name]} → [[resource, epoch, token, confirmed]] of those that have a mark
CREATE OR REPLACE FUNCTION fencegate_load(asked jsonb) RETURNS jsonb LANGUAGE plpgsql STABLE
    SET enable_seqscan = off
AS $$
BEGIN
    RETURN (
        SELECT coalesce(jsonb_agg(jsonb_build_array(resource, epoch, token, confirmed)), '[]')
        FROM fences WHERE resource IN (SELECT jsonb_array_elements_text(asked -> 'resources')));
END $$;
