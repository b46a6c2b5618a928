-- A raise that comes alone is the usual one, and a worker waits for it: one plain statement after the other takes
-- half the time of statements over sets, and a large batch little more.

-- Which server answers, and which of its lives: after a fail-over, a restart or a restored backup it is
-- another one. Two servers do not start in the same microsecond, so it needs no name of the cluster, for which
-- the server would read a file each time. Fails on a standby. Volatile, as what it calls is: else it would be
-- parsed anew in each transaction instead of becoming part of the plan of its caller.
CREATE OR REPLACE FUNCTION fencegate_server() RETURNS text LANGUAGE sql VOLATILE AS $$
    SELECT left(pg_walfile_name(pg_current_wal_lsn()), 8)
        || '/' || extract(epoch FROM pg_postmaster_start_time())
$$;

-- One batch of raises: {instance, raises: [{nth, resource, epoch, token, confirmed, owner, settle_ms,
-- number, drain_ms}]}. Answers {server, member, raised: [[epoch, token, confirmed, elsewhere]]}, in their order.
--
-- Never over whole tables: a plan that was made while they were empty would be kept while they grow.
CREATE OR REPLACE FUNCTION fencegate_raise(asked jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE
    SET enable_seqscan = off
AS $$
DECLARE
    me           bigint  := (asked ->> 'instance')::bigint;
    raised       jsonb[] := '{}';
    older        jsonb   := '[]';  -- grants of others below the marks
    asked_before text;             -- the resource before this one
    r            record;
    mark         record;
    is_elsewhere boolean;
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

    -- In one order of resources, so that no two batches wait for each other. Of one resource the highest comes
    -- first, so that no lower token of the batch is granted.
    FOR r IN
        SELECT * FROM jsonb_to_recordset(asked -> 'raises')
            AS r (nth integer, resource text, epoch bigint, token bigint, confirmed boolean, owner text,
                settle_ms bigint, number bigint, drain_ms bigint)
        ORDER BY resource COLLATE "C", epoch DESC, token DESC, confirmed DESC
    LOOP
        -- The row is locked, also where nothing is raised: from here to the end of the transaction no other one
        -- decides about this resource, and each statement from here on sees what was committed until then.
        INSERT INTO fences (resource, epoch, token, confirmed, owner)
        VALUES (r.resource, r.epoch, r.token, r.confirmed, r.owner)
        ON CONFLICT (resource) DO UPDATE SET
            epoch = excluded.epoch, token = excluded.token, confirmed = excluded.confirmed,
            owner = excluded.owner, updated_at = now()
        WHERE (excluded.epoch, excluded.token, excluded.confirmed)
            > (fences.epoch, fences.token, fences.confirmed)
        RETURNING epoch, token, confirmed INTO mark;
        IF NOT FOUND THEN
            SELECT epoch, token, confirmed INTO mark FROM fences WHERE resource = r.resource;
        END IF;

        IF r.settle_ms IS NOT NULL AND (r.epoch, r.token) = (mark.epoch, mark.token) THEN
            INSERT INTO grants (resource, epoch, token, instance, settle_ms, number)
            VALUES (r.resource, r.epoch, r.token, me, r.settle_ms, r.number)
            ON CONFLICT (resource, instance, epoch, token) DO UPDATE
                SET settle_ms = greatest(grants.settle_ms, excluded.settle_ms),
                    number = greatest(grants.number, excluded.number);
        END IF;

        -- Two looks, so that none passes over this instance's own grants.
        PERFORM FROM grants g
        WHERE g.resource = r.resource AND g.instance < me AND (g.epoch, g.token) < (mark.epoch, mark.token)
        LIMIT 1;
        is_elsewhere := FOUND;
        IF NOT is_elsewhere THEN
            PERFORM FROM grants g
            WHERE g.resource = r.resource AND g.instance > me AND (g.epoch, g.token) < (mark.epoch, mark.token)
            LIMIT 1;
            is_elsewhere := FOUND;
        END IF;
        IF is_elsewhere AND r.resource IS DISTINCT FROM asked_before THEN
            older := older || (
                SELECT jsonb_agg(jsonb_build_object('resource', g.resource, 'epoch', g.epoch,
                    'token', g.token, 'instance', g.instance,
                    'drain_ms', CASE WHEN (r.epoch, r.token) = (mark.epoch, mark.token) THEN r.drain_ms END))
                FROM grants g
                WHERE g.resource = r.resource AND g.instance <> me
                    AND (g.epoch, g.token) < (mark.epoch, mark.token)
            );
        END IF;
        asked_before := r.resource;
        raised[r.nth] := jsonb_build_array(mark.epoch, mark.token, mark.confirmed, is_elsewhere);
    END LOOP;
    IF older <> '[]' THEN
        PERFORM fencegate_revoke(older);
    END IF;
    RETURN jsonb_build_object('server', fencegate_server(), 'member', true, 'raised', to_jsonb(raised));
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
