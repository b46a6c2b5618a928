-- A grant's record is rewritten for the next token of the same instance instead of one being written and one deleted.
-- That costs half as much if no index has to be told of it, so what changes is in none.

-- Raises begin with a lock on their instance. Those that have it end before this goes on; others wait for it, and then
-- call what is new. Renewals wait as well, so not for long: it can be tried again. Who only reads instances does not wait, as
-- some do so who have a lock on grants.
SET LOCAL lock_timeout = '3s';
LOCK TABLE instances IN EXCLUSIVE MODE;

-- Not with a column more: the table would be written anew, and be empty to all who had begun to read and waited. One of
-- them would be told that nobody has older grants. Without a key, since whatever tells two records apart changes; so whoever
-- publishes the table is to be told whole rows.
ALTER TABLE grants SET (fillfactor = 50), DROP CONSTRAINT grants_pkey, REPLICA IDENTITY FULL;

-- In this order, so that looking for grants of others passes over an instance's own.
CREATE INDEX grants_of_resource ON grants (resource, instance);

ALTER TYPE fencegate_asked ADD ATTRIBUTE spare bigint;   -- the number of a grant that is over
ALTER TYPE fencegate_marked ADD ATTRIBUTE spare bigint;

-- What is asked in a raise, and a grant that matters to it.
CREATE TYPE fencegate_seen AS (
    resource    text,
    epoch       bigint,   -- of the mark, as is the next one
    token       bigint,
    settle_ms   bigint,
    number      bigint,
    spare       bigint,
    drain_ms    bigint,
    place       tid,      -- of the grant, as is all that follows
    instance    bigint,
    grant_epoch bigint,
    grant_token bigint,
    revoked     boolean,
    is_same     boolean   -- it is for the token that is asked for
);

-- An instance has one record for a token: raises and assertions have the mark's lock and look first. A second one, from the
-- version before, does no harm: it goes with the first.

-- Several raises at once: [{nth, resource, epoch, token, confirmed, owner, settle_ms, number, spare, drain_ms}] →
-- [[epoch, token, confirmed, elsewhere]], in their order. Where a spare is named there is one value more: whether its
-- record was rewritten.
CREATE OR REPLACE FUNCTION fencegate_raise_many(me bigint, raises jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE
    SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    every fencegate_asked[] :=
        ARRAY(SELECT r FROM jsonb_populate_recordset(NULL::fencegate_asked, raises) AS r);
    is_raised  integer;  -- so many are
    its        fencegate_asked;
    raised     jsonb[];
    marked     fencegate_marked[];
    seen       fencegate_seen[];
    spent      bigint[];
    rewritten  text[];  -- resources of records that were
    waited_for text[];  -- those of them that were revoked
    older      jsonb;   -- grants of others below the marks
    names      text[];  -- of their resources
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
    GET DIAGNOSTICS is_raised = ROW_COUNT;

    -- What follows is for one raise of each resource. There are more when nobody waits for the first any more.
    IF is_raised < cardinality(every)
        AND EXISTS (SELECT FROM unnest(every) AS r GROUP BY r.resource HAVING count(*) > 1)
    THEN
        FOR its IN SELECT * FROM unnest(every) AS r ORDER BY r.resource COLLATE "C", r.nth LOOP
            raised[its.nth] := fencegate_raise_one(me, to_jsonb(its)) -> 0;
        END LOOP;
        RETURN to_jsonb(raised);
    END IF;

    -- Each statement from here on sees what was committed while the one above waited for its locks. In one
    -- statement with it, grants that were recorded meanwhile would not be seen. The marks are locked, so what is
    -- read of them here holds to the end, and nobody else records a grant of these resources.
    marked := ARRAY(
        SELECT ROW(r.nth, r.resource, f.epoch, f.token, f.confirmed, (r.epoch, r.token) = (f.epoch, f.token),
            r.settle_ms, r.number, r.drain_ms, r.spare)::fencegate_marked
        FROM unnest(every) AS r
        CROSS JOIN LATERAL (SELECT * FROM fences WHERE resource = r.resource OFFSET 0) AS f);

    -- Its own of the token and the spare; those of others below the mark.
    seen := ARRAY(
        SELECT ROW(m.resource, m.epoch, m.token, m.settle_ms, m.number, m.spare,
            CASE WHEN m.is_asked THEN m.drain_ms END, g.*)::fencegate_seen
        FROM unnest(marked) AS m
        CROSS JOIN LATERAL (
            SELECT g.ctid, g.instance, g.epoch, g.token, g.revoked,
                (g.epoch, g.token) = (m.epoch, m.token) AS is_same
            FROM grants g
            WHERE g.resource = m.resource AND CASE
                WHEN g.instance <> me THEN (g.epoch, g.token) < (m.epoch, m.token)
                WHEN m.is_asked AND m.settle_ms IS NOT NULL THEN
                    (g.epoch, g.token) = (m.epoch, m.token) OR g.number = m.spare
            END
            OFFSET 0
        ) AS g);

    -- One that was given back meanwhile is not there any more, and its place is no other one's as long as the statement goes
    -- on that called this. Whether it is revoked has not changed: who revokes has the mark's lock.
    WITH due AS (
        SELECT DISTINCT ON (resource COLLATE "C") * FROM unnest(seen) AS s
        WHERE s.instance = me ORDER BY resource COLLATE "C", is_same DESC
    ), rewritten AS (
        UPDATE grants g SET
            epoch = d.epoch, token = d.token, number = greatest(g.number, d.number),
            settle_ms = greatest(d.settle_ms, CASE WHEN d.is_same THEN g.settle_ms END),
            revoked = d.is_same AND g.revoked, drain_ms = CASE WHEN d.is_same THEN g.drain_ms END
        FROM due d WHERE g.ctid = d.place AND g.resource = d.resource AND g.instance = me
        RETURNING d.resource, d.spare, d.is_same, d.revoked
    )
    SELECT coalesce(array_agg(resource), '{}'),
        coalesce(array_agg(r.spare) FILTER (WHERE NOT is_same), '{}'),
        array_agg(resource) FILTER (WHERE revoked AND NOT is_same)
    INTO rewritten, spent, waited_for
    FROM rewritten AS r;

    IF cardinality(rewritten) < cardinality(marked) THEN
        INSERT INTO grants (resource, epoch, token, instance, settle_ms, number)
        SELECT resource, epoch, token, me, settle_ms, number FROM unnest(marked) AS m
        WHERE m.is_asked AND m.settle_ms IS NOT NULL AND resource <> ALL (rewritten);
    END IF;

    IF cardinality(rewritten) < cardinality(seen) THEN
        SELECT jsonb_agg(jsonb_build_object('resource', s.resource, 'epoch', s.grant_epoch,
            'token', s.grant_token, 'instance', s.instance, 'drain_ms', s.drain_ms)), array_agg(s.resource)
        INTO older, names
        FROM unnest(seen) AS s WHERE s.instance <> me;
        PERFORM fencegate_revoke(older) WHERE older IS NOT NULL;
    END IF;
    IF waited_for IS NOT NULL THEN
        PERFORM pg_notify('fencegate', 'given_back:' || resource) FROM unnest(waited_for) AS resource;
    END IF;

    RETURN (
        SELECT jsonb_agg(
            CASE WHEN m.spare IS NULL THEN jsonb_build_array(m.epoch, m.token, m.confirmed, m.is_elsewhere)
            ELSE jsonb_build_array(m.epoch, m.token, m.confirmed, m.is_elsewhere, m.spare = ANY (spent))
            END ORDER BY m.nth)
        FROM (
            SELECT *, coalesce(resource = ANY (names), false) AS is_elsewhere FROM unnest(marked)
        ) AS m
    );
END $$;

-- A raise that comes alone, which is the usual one and which a worker waits for: the same in plain statements, which
-- take half the time to start.
CREATE OR REPLACE FUNCTION fencegate_raise_one(me bigint, raise jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    its_resource text   := raise ->> 'resource';
    its_epoch    bigint := (raise ->> 'epoch')::bigint;
    its_token    bigint := (raise ->> 'token')::bigint;
    its_settle   bigint := (raise ->> 'settle_ms')::bigint;
    its_number   bigint := (raise ->> 'number')::bigint;
    its_spare    bigint := (raise ->> 'spare')::bigint;
    mark         fences;
    found_one    record;
    is_spent     boolean := false;
    is_elsewhere boolean;
    answer       jsonb;
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
        UPDATE grants g SET
            epoch = its_epoch, token = its_token, number = greatest(g.number, its_number),
            settle_ms = greatest(its_settle, CASE WHEN d.is_same THEN g.settle_ms END),
            revoked = d.is_same AND g.revoked, drain_ms = CASE WHEN d.is_same THEN g.drain_ms END
        FROM (
            SELECT g.ctid AS at, (g.epoch, g.token) = (its_epoch, its_token) AS is_same, g.revoked
            FROM grants g
            WHERE g.resource = its_resource AND g.instance = me
                AND ((g.epoch, g.token) = (its_epoch, its_token) OR g.number = its_spare)
            ORDER BY is_same DESC LIMIT 1
        ) AS d WHERE g.ctid = d.at
        RETURNING d.is_same, d.revoked INTO found_one;
        IF NOT FOUND THEN
            INSERT INTO grants (resource, epoch, token, instance, settle_ms, number)
            VALUES (its_resource, its_epoch, its_token, me, its_settle, its_number);
        ELSIF NOT found_one.is_same THEN
            is_spent := true;
            IF found_one.revoked THEN
                PERFORM pg_notify('fencegate', 'given_back:' || its_resource);
            END IF;
        END IF;
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
    answer := jsonb_build_array(mark.epoch, mark.token, mark.confirmed, is_elsewhere);
    IF its_spare IS NOT NULL THEN
        answer := answer || to_jsonb(is_spent);
    END IF;
    RETURN jsonb_build_array(answer);
END $$;

-- The next two as before, but that they look for a record of the same token themselves.

CREATE OR REPLACE FUNCTION fencegate_assert(asked jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE
    SET enable_seqscan = off
AS $$
DECLARE
    me        bigint  := (asked ->> 'instance')::bigint;
    is_member boolean := fencegate_is_member(me);
    its       record;
BEGIN
    PERFORM fencegate_raise_marks(asked -> 'marks');
    IF is_member THEN
        FOR its IN
            SELECT a.*, (a.epoch, a.token) < (f.epoch, f.token) AS is_below
            FROM jsonb_to_recordset(asked -> 'grants')
                AS a (resource text, epoch bigint, token bigint, settle_ms bigint, number bigint)
            CROSS JOIN LATERAL (SELECT * FROM fences WHERE resource = a.resource OFFSET 0) AS f
            ORDER BY a.resource COLLATE "C", a.epoch, a.token
        LOOP
            UPDATE grants g SET settle_ms = greatest(g.settle_ms, its.settle_ms),
                number = greatest(g.number, its.number), revoked = g.revoked OR its.is_below
            WHERE g.resource = its.resource AND g.instance = me
                AND g.epoch = its.epoch AND g.token = its.token;
            CONTINUE WHEN FOUND;
            INSERT INTO grants (resource, epoch, token, instance, settle_ms, number, revoked)
            VALUES (its.resource, its.epoch, its.token, me, its.settle_ms, its.number, its.is_below);
        END LOOP;
    END IF;
    RETURN jsonb_build_object('server', fencegate_server(), 'member', is_member);
END $$;

CREATE OR REPLACE FUNCTION fencegate_leave(asked jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE
    SET enable_seqscan = off
AS $$
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
    WHERE settle_ms IS NOT NULL AND NOT EXISTS (
        SELECT FROM grants g
        WHERE g.resource = k.resource AND g.instance = me AND g.epoch = k.epoch AND g.token = k.token
        OFFSET 0);
    RETURN jsonb_build_object('server', fencegate_server());
END $$;
