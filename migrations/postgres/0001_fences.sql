-- What several instances of the gateway share. No clock of the database decides anything: times are for
-- people, and each instance counts how long it saw another one stand still by its own clock.

-- The high-water marks. A row is raised, never lowered, never deleted.
CREATE TABLE fences (
    resource   text COLLATE "C" PRIMARY KEY,
    epoch      bigint      NOT NULL CHECK (epoch > 0),
    token      bigint      NOT NULL CHECK (token > 0),
    confirmed  boolean     NOT NULL,  -- the coordinator named the token as the holder's
    owner      text,
    updated_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 80);

-- One row per run of the gateway, from its start until its grants are gone. The number is random, so that a
-- database that was restored does not hand it out again.
CREATE TABLE instances (
    id         bigint      PRIMARY KEY,
    renewals   bigint      NOT NULL DEFAULT 0,
    ttl_ms     bigint      NOT NULL CHECK (ttl_ms > 0),
    fenced     boolean     NOT NULL DEFAULT false,  -- it is over: it gets no grant and renews nothing
    started_at timestamptz NOT NULL DEFAULT now(),
    renewed_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);

-- An instance's right to admit writes of one token without asking again.
CREATE TABLE grants (
    resource  text COLLATE "C" NOT NULL,
    epoch     bigint  NOT NULL,
    token     bigint  NOT NULL,
    instance  bigint  NOT NULL,
    settle_ms bigint  NOT NULL,
    number    bigint  NOT NULL,                -- tells this record from an earlier one of the same name
    revoked   boolean NOT NULL DEFAULT false,  -- a newer token waits for it
    drain_ms  bigint,                          -- how long its writes may finish; none: they are not cut
    -- In this order, so that looking for those of others passes over an instance's own, of which there may be
    -- many that are about to be given back.
    PRIMARY KEY (resource, instance, epoch, token)
) WITH (fillfactor = 80);

CREATE INDEX grants_by_instance ON grants (instance);
CREATE INDEX grants_revoked ON grants (instance) WHERE revoked;

-- Which server answers, and which of its lives: after a fail-over, a restart or a restored backup it is
-- another one. Fails on a standby.
CREATE FUNCTION fencegate_server() RETURNS text LANGUAGE sql STABLE AS $$
    SELECT system_identifier || '/' || left(pg_walfile_name(pg_current_wal_lsn()), 8)
        || '/' || extract(epoch FROM pg_postmaster_start_time())
    FROM pg_control_system()
$$;

-- Whether an instance may ask for grants. Until the transaction ends nobody fences it. The lock does not
-- wait for a renewal of its lease, nor a renewal for it.
CREATE FUNCTION fencegate_is_member(id bigint) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM FROM instances i WHERE i.id = fencegate_is_member.id AND NOT i.fenced FOR KEY SHARE;
    RETURN FOUND;
END $$;

-- Brings marks up to what is asked. Every row is locked, also where nothing is raised: from here to the end
-- of the transaction no other one decides about these resources. In one order, so that no two batches
-- wait for each other.
CREATE FUNCTION fencegate_raise_marks(asked jsonb) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    -- With an older snapshot the statements after this one would not see what was committed meanwhile.
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'marks are raised under READ COMMITTED only';
    END IF;
    INSERT INTO fences (resource, epoch, token, confirmed, owner)
    SELECT DISTINCT ON (resource COLLATE "C") resource, epoch, token, confirmed, owner
    FROM jsonb_to_recordset(asked)
        AS r (resource text, epoch bigint, token bigint, confirmed boolean, owner text)
    ORDER BY resource COLLATE "C", epoch DESC, token DESC, confirmed DESC
    ON CONFLICT (resource) DO UPDATE SET
        epoch = excluded.epoch, token = excluded.token, confirmed = excluded.confirmed,
        owner = excluded.owner, updated_at = now()
    WHERE (excluded.epoch, excluded.token, excluded.confirmed)
        > (fences.epoch, fences.token, fences.confirmed);
END $$;

-- Marks grants as revoked, [{resource, epoch, token, instance, drain_ms}], and tells those who have them. The
-- shortest drain counts.
CREATE FUNCTION fencegate_revoke(older jsonb) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    told bigint[];
BEGIN
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
        RETURNING g.instance
    )
    SELECT array_agg(DISTINCT instance) INTO told FROM revoked;
    PERFORM pg_notify('fencegate', 'revoked:' || instance) FROM unnest(told) AS instance;
END $$;

-- One batch of raises: {instance, raises: [{nth, resource, epoch, token, confirmed, owner, settle_ms,
-- number, drain_ms}]}. Answers {server, member, raised: [[epoch, token, confirmed, elsewhere]]}, in their order.
CREATE FUNCTION fencegate_raise(asked jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    me     bigint := (asked ->> 'instance')::bigint;
    raises jsonb  := asked -> 'raises';
    older  jsonb;  -- grants of others below the marks
    names  jsonb;  -- of their resources
BEGIN
    IF NOT fencegate_is_member(me) THEN
        RETURN jsonb_build_object('server', fencegate_server(), 'member', false);
    END IF;
    PERFORM fencegate_raise_marks(raises);

    -- Each statement from here on sees what was committed while the one above waited for its locks. In one
    -- statement with it, grants that were recorded meanwhile would not be seen.
    INSERT INTO grants (resource, epoch, token, instance, settle_ms, number)
    SELECT resource, epoch, token, me, max(r.settle_ms), max(r.number)
    FROM jsonb_to_recordset(raises)
        AS r (resource text, epoch bigint, token bigint, settle_ms bigint, number bigint)
    JOIN fences f USING (resource, epoch, token)
    WHERE r.settle_ms IS NOT NULL
    GROUP BY resource, epoch, token
    ORDER BY resource COLLATE "C"
    ON CONFLICT (resource, instance, epoch, token) DO UPDATE
        SET settle_ms = greatest(grants.settle_ms, excluded.settle_ms),
            number = greatest(grants.number, excluded.number);

    WITH newest AS (
        SELECT resource, f.epoch, f.token,
            min(r.drain_ms) FILTER (WHERE (r.epoch, r.token) = (f.epoch, f.token)) AS drain_ms
        FROM jsonb_to_recordset(raises) AS r (resource text, epoch bigint, token bigint, drain_ms bigint)
        JOIN fences f USING (resource)
        GROUP BY resource, f.epoch, f.token
    )
    SELECT jsonb_agg(jsonb_build_object('resource', g.resource, 'epoch', g.epoch, 'token', g.token,
        'instance', g.instance, 'drain_ms', n.drain_ms)), jsonb_agg(g.resource)
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

    RETURN jsonb_build_object('server', fencegate_server(), 'member', true, 'raised', (
        SELECT jsonb_agg(jsonb_build_array(f.epoch, f.token, f.confirmed,
            coalesce(names ? f.resource, false)) ORDER BY r.nth)
        FROM jsonb_to_recordset(raises) AS r (nth bigint, resource text) JOIN fences f USING (resource)
    ));
END $$;

-- {instance, asked: [{nth, resource, epoch, token}]} → {server, elsewhere: [whether others have grants below]}
CREATE FUNCTION fencegate_elsewhere(asked jsonb) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object('server', fencegate_server(), 'elsewhere', jsonb_agg(
        EXISTS (SELECT FROM grants g
            WHERE g.resource = r.resource AND g.instance < (asked ->> 'instance')::bigint
                AND (g.epoch, g.token) < (r.epoch, r.token))
        OR EXISTS (SELECT FROM grants g
            WHERE g.resource = r.resource AND g.instance > (asked ->> 'instance')::bigint
                AND (g.epoch, g.token) < (r.epoch, r.token))
        ORDER BY r.nth))
    FROM jsonb_to_recordset(asked -> 'asked')
        AS r (nth bigint, resource text, epoch bigint, token bigint)
$$;

-- {resources: [name]} → [[resource, epoch, token, confirmed]] of those that have a mark
CREATE FUNCTION fencegate_load(asked jsonb) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT coalesce(jsonb_agg(jsonb_build_array(resource, epoch, token, confirmed)), '[]')
    FROM fences WHERE resource IN (SELECT jsonb_array_elements_text(asked -> 'resources'))
$$;

-- Deletes grants of one instance: {instance, grants: [{resource, epoch, token, number}]}, a request that comes late
-- none but those it means. Who waits is told.
CREATE FUNCTION fencegate_delete(asked jsonb) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    waited_for text[];
BEGIN
    WITH due AS (
        SELECT g.resource, g.epoch, g.token
        FROM grants g
        JOIN jsonb_to_recordset(asked -> 'grants')
            AS r (resource text, epoch bigint, token bigint, number bigint)
            USING (resource, epoch, token, number)
        WHERE g.instance = (asked ->> 'instance')::bigint
        ORDER BY g.resource, g.epoch, g.token
        FOR UPDATE OF g
    ), deleted AS (
        DELETE FROM grants g USING due d
        WHERE (g.resource, g.epoch, g.token) = (d.resource, d.epoch, d.token)
            AND g.instance = (asked ->> 'instance')::bigint
        RETURNING g.resource, g.revoked
    )
    SELECT array_agg(DISTINCT resource) FILTER (WHERE revoked) INTO waited_for FROM deleted;
    PERFORM pg_notify('fencegate', 'given_back:' || resource) FROM unnest(waited_for) AS resource;
END $$;

-- The same, without waiting for the disk, as somebody may be waiting for it: a grant that comes back with a crash
-- of the server is one too many, which costs a wait and nothing else.
CREATE FUNCTION fencegate_give_back(asked jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    PERFORM fencegate_delete(asked);
    RETURN 'null';
END $$;

-- Deletes grants of one instance but some, a bounded number: {instance, keep: [{resource, epoch, token}]} → how many
-- were deleted. All of them at once would take longer than a call may.
CREATE FUNCTION fencegate_give_back_all_but(asked jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    me         bigint := (asked ->> 'instance')::bigint;
    count      bigint;
    waited_for text[];
BEGIN
    WITH few AS (
        SELECT resource, epoch, token, instance FROM grants
        WHERE instance = me AND (resource, epoch, token) NOT IN (
            SELECT resource, epoch, token FROM jsonb_to_recordset(asked -> 'keep')
                AS k (resource text, epoch bigint, token bigint))
        LIMIT 5000
    ), due AS (
        SELECT resource, epoch, token, instance
        FROM grants g JOIN few USING (resource, epoch, token, instance)
        ORDER BY resource, epoch, token
        FOR UPDATE OF g
    ), deleted AS (
        DELETE FROM grants g USING due d
        WHERE (g.resource, g.epoch, g.token, g.instance)
            = (d.resource, d.epoch, d.token, d.instance)
        RETURNING g.resource, g.revoked
    )
    SELECT count(*), array_agg(DISTINCT resource) FILTER (WHERE revoked) INTO count, waited_for
    FROM deleted;
    PERFORM pg_notify('fencegate', 'given_back:' || resource) FROM unnest(waited_for) AS resource;
    RETURN to_jsonb(count);
END $$;

-- Begins a run: {instance, ttl_ms}. Fails if the number is taken.
CREATE FUNCTION fencegate_join(asked jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    INSERT INTO instances (id, ttl_ms)
    VALUES ((asked ->> 'instance')::bigint, (asked ->> 'ttl_ms')::bigint);
    RETURN jsonb_build_object('server', fencegate_server());
END $$;

-- Prolongs the lease of an instance: {instance} → {server, member}
CREATE FUNCTION fencegate_renew(asked jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    is_member boolean;
BEGIN
    UPDATE instances SET renewals = renewals + 1, renewed_at = now()
    WHERE id = (asked ->> 'instance')::bigint AND NOT fenced;
    is_member := FOUND;
    RETURN jsonb_build_object('server', fencegate_server(), 'member', is_member);
END $$;

-- What an instance has to know of the others: {instance} → {server, revoked: its grants that others wait for,
-- [[resource, epoch, token, number, [epoch, token, confirmed] of the mark, drain_ms]], others: [[id, renewals, ttl_ms,
-- fenced]]}
CREATE FUNCTION fencegate_look(asked jsonb) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object(
        'server', fencegate_server(),
        'revoked', (
            SELECT coalesce(jsonb_agg(line), '[]')
            FROM (
                SELECT jsonb_build_array(resource, g.epoch, g.token, g.number,
                    jsonb_build_array(f.epoch, f.token, f.confirmed), g.drain_ms) AS line
                FROM grants g JOIN fences f USING (resource)
                WHERE g.instance = (asked ->> 'instance')::bigint AND g.revoked
                LIMIT 5000
            ) AS few
        ),
        'others', (
            SELECT coalesce(jsonb_agg(jsonb_build_array(id, renewals, ttl_ms, fenced)), '[]')
            FROM instances WHERE id <> (asked ->> 'instance')::bigint
        ))
$$;

-- Takes another instance for dead, if it has not renewed since: {instance, renewals} → whether it is.
CREATE FUNCTION fencegate_fence(asked jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    its_id bigint := (asked ->> 'instance')::bigint;
BEGIN
    -- This lock waits for raises of that instance that are under way.
    PERFORM FROM instances
    WHERE id = its_id AND renewals = (asked ->> 'renewals')::bigint AND NOT fenced FOR UPDATE;
    IF FOUND THEN
        UPDATE instances SET fenced = true WHERE id = its_id;
        RETURN 'true';
    END IF;
    RETURN 'false';
END $$;

-- Deletes grants of a fenced instance that have settled, a bounded number, and in the end its row:
-- {instance, settle_ms} → how many were deleted.
CREATE FUNCTION fencegate_bury(asked jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    its_id     bigint := (asked ->> 'instance')::bigint;
    count      bigint;
    waited_for text[];
BEGIN
    -- Whoever records what is left of a run has this lock as well: else that could be left without a row, and
    -- nobody would ever bury it.
    PERFORM FROM instances WHERE id = its_id AND fenced FOR UPDATE;
    IF NOT FOUND THEN
        RETURN '0';
    END IF;
    WITH due AS (
        SELECT resource, epoch, token, instance FROM grants
        WHERE instance = its_id AND settle_ms <= (asked ->> 'settle_ms')::bigint
        LIMIT 5000
        FOR UPDATE SKIP LOCKED
    ), deleted AS (
        DELETE FROM grants g USING due d
        WHERE (g.resource, g.epoch, g.token, g.instance)
            = (d.resource, d.epoch, d.token, d.instance)
        RETURNING g.resource, g.revoked
    )
    SELECT count(*), array_agg(DISTINCT resource) FILTER (WHERE revoked) INTO count, waited_for
    FROM deleted;
    PERFORM pg_notify('fencegate', 'given_back:' || resource) FROM unnest(waited_for) AS resource;
    DELETE FROM instances
    WHERE id = its_id AND NOT EXISTS (SELECT FROM grants WHERE instance = its_id);
    RETURN to_jsonb(count);
END $$;

-- Ends a run: {instance, ttl_ms, keep: [{resource, epoch, token, settle_ms, number}]}. Its grants are to be given back
-- after that but for those, whose writes may still take effect. Where the row was lost it is made again, with
-- those grants.
CREATE FUNCTION fencegate_leave(asked jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    me bigint := (asked ->> 'instance')::bigint;
BEGIN
    -- Not `DO NOTHING`: the row has to stay until the grants are recorded.
    INSERT INTO instances (id, ttl_ms, fenced) VALUES (me, (asked ->> 'ttl_ms')::bigint, true)
    ON CONFLICT (id) DO UPDATE SET fenced = true;
    -- This lock waits for raises of this instance that are under way.
    PERFORM FROM instances WHERE id = me FOR UPDATE;
    INSERT INTO grants (resource, epoch, token, instance, settle_ms, number)
    SELECT resource, epoch, token, me, settle_ms, number
    FROM jsonb_to_recordset(asked -> 'keep')
        AS k (resource text, epoch bigint, token bigint, settle_ms bigint, number bigint)
    WHERE settle_ms IS NOT NULL
    ORDER BY resource COLLATE "C"
    ON CONFLICT DO NOTHING;
    RETURN jsonb_build_object('server', fencegate_server());
END $$;

-- Ends a run with whatever grants it has: {instance}.
CREATE FUNCTION fencegate_retire(asked jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM FROM instances WHERE id = (asked ->> 'instance')::bigint FOR UPDATE;
    UPDATE instances SET fenced = true WHERE id = (asked ->> 'instance')::bigint AND NOT fenced;
    RETURN 'null';
END $$;

-- Tells a server that may have lost them what an instance remembers: {instance, marks: [{resource, epoch,
-- token, confirmed}], grants: [{resource, epoch, token, settle_ms, number}]} → {server, member}. The marks are raised
-- whether it is a member or not.
CREATE FUNCTION fencegate_assert(asked jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    me bigint := (asked ->> 'instance')::bigint;
    is_member boolean := fencegate_is_member(me);
BEGIN
    PERFORM fencegate_raise_marks(asked -> 'marks');
    IF is_member THEN
        INSERT INTO grants (resource, epoch, token, instance, settle_ms, number, revoked)
        SELECT resource, a.epoch, a.token, me, a.settle_ms, a.number,
            (a.epoch, a.token) < (f.epoch, f.token)
        FROM jsonb_to_recordset(asked -> 'grants')
            AS a (resource text, epoch bigint, token bigint, settle_ms bigint, number bigint)
        JOIN fences f USING (resource)
        ORDER BY resource COLLATE "C", a.epoch, a.token
        ON CONFLICT (resource, instance, epoch, token) DO UPDATE
            SET settle_ms = greatest(grants.settle_ms, excluded.settle_ms),
                number = greatest(grants.number, excluded.number),
                revoked = grants.revoked OR excluded.revoked;
    END IF;
    RETURN jsonb_build_object('server', fencegate_server(), 'member', is_member);
END $$;

-- {after, limit} → rows of the fence table in the order of their names, for people
CREATE FUNCTION fencegate_list(asked jsonb) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT coalesce(jsonb_agg(line), '[]')
    FROM (
        SELECT jsonb_build_array(resource, epoch, token, confirmed, owner,
            floor(extract(epoch FROM updated_at) * 1000)::bigint) AS line
        FROM fences WHERE resource > (asked ->> 'after') ORDER BY resource
        LIMIT (asked ->> 'limit')::bigint
    ) AS page
$$;

-- {resource} → its row, if there is one, as in a list
CREATE FUNCTION fencegate_show(asked jsonb) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT coalesce(jsonb_agg(jsonb_build_array(resource, epoch, token, confirmed, owner,
        floor(extract(epoch FROM updated_at) * 1000)::bigint)), '[]')
    FROM fences WHERE resource = asked ->> 'resource'
$$;

-- {limit} → {count, left: [[resource, epoch, token, settle_ms, instance]]}: grants of runs that are over
CREATE FUNCTION fencegate_left(asked jsonb) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object(
        'count', (SELECT count(*) FROM grants g JOIN instances i ON i.id = g.instance WHERE i.fenced),
        'left', (
            SELECT coalesce(jsonb_agg(line), '[]')
            FROM (
                SELECT jsonb_build_array(g.resource, g.epoch, g.token, g.settle_ms, g.instance) AS line
                FROM grants g JOIN instances i ON i.id = g.instance
                WHERE i.fenced
                LIMIT (asked ->> 'limit')::bigint
            ) AS few
        ))
$$;
