-- Leases and who waits for them. One function per verb, each of which is one statement and hence one
-- transaction for its caller, so that a verb is one round trip and needs no state of a session.
--
-- The functions are VOLATILE plpgsql: in READ COMMITTED each of their statements sees what was
-- committed before it, also while the one before waited for a lock. A single statement with CTEs
-- would not.
--
-- Times are milliseconds since 1970 by this server's clock, read after the locks were got. Whoever
-- sees that a lease has expired deletes it in the same transaction, so an end that was once seen is
-- final, whatever the clock does afterwards.
--
-- Order of locks: the resource's advisory lock (acquire alone), its lease, its waiters.

-- CACHE 1: with more, sessions would hand out tokens out of order. A sequence never goes back, not
-- even when the transaction that took the number is rolled back.
CREATE SEQUENCE fencegate_leases_tokens AS bigint MINVALUE 1 NO CYCLE CACHE 1;
CREATE SEQUENCE fencegate_leases_places AS bigint MINVALUE 1 NO CYCLE CACHE 1;

CREATE TABLE fencegate_leases (
    resource    text COLLATE "C" PRIMARY KEY,
    owner       text   NOT NULL,
    token       bigint NOT NULL CHECK (token > 0),
    ttl_ms      bigint NOT NULL CHECK (ttl_ms > 0),
    acquired_at bigint NOT NULL,
    expires_at  bigint NOT NULL
);
CREATE INDEX fencegate_leases_by_expiry ON fencegate_leases (expires_at);

-- A place in the queue for a lease. It counts until `expires_at`, which its gateway keeps moving:
-- a gateway that died does not keep others waiting.
CREATE TABLE fencegate_leases_waiters (
    place      bigint PRIMARY KEY,
    resource   text COLLATE "C" NOT NULL,
    expires_at bigint NOT NULL
);
CREATE INDEX fencegate_leases_waiters_by_resource ON fencegate_leases_waiters (resource, place);
CREATE INDEX fencegate_leases_waiters_by_expiry ON fencegate_leases_waiters (expires_at);

CREATE FUNCTION fencegate_leases_now() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint
$$;

-- Wakes those who wait for the lease of `p_resource`, on whatever gateway. Without any it costs
-- nothing: notifications make commits wait for each other.
CREATE FUNCTION fencegate_leases_tell(p_resource text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM fencegate_leases_waiters WHERE resource = p_resource) THEN
        PERFORM pg_notify('fencegate_leases', p_resource);
    END IF;
END
$$;

-- Answers `granted` with the lease and what it superseded, `held` with the lease, or `free` if
-- others come first. Unless it is granted, or held and the caller does not wait, the caller has
-- `place` in the queue for `p_keep_ms` from now on; `p_place` is the one that it had.
CREATE FUNCTION fencegate_leases_acquire(
    p_resource text, p_owner text, p_ttl_ms bigint, p_place bigint, p_waits boolean, p_keep_ms bigint
) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    v_now      bigint;
    v_lease    fencegate_leases;
    v_is_held  boolean;
    v_is_first boolean;
    v_place    bigint := p_place;
    v_expired  jsonb := '[]';
    v_old      jsonb;
BEGIN
    -- There may be no row to lock. Resources that share a number only wait for each other.
    PERFORM pg_advisory_xact_lock(hashtextextended(p_resource, 7166185061));
    SELECT * INTO v_lease FROM fencegate_leases WHERE resource = p_resource FOR UPDATE;
    v_is_held := FOUND;
    v_now := fencegate_leases_now();
    IF v_is_held AND v_lease.expires_at <= v_now THEN
        DELETE FROM fencegate_leases WHERE resource = p_resource;
        v_expired := jsonb_build_array(to_jsonb(v_lease));
        v_is_held := false;
    ELSIF v_is_held AND v_lease.expires_at > v_now + v_lease.ttl_ms THEN
        -- This clock went back since; the holder does not count on more than its TTL.
        UPDATE fencegate_leases SET expires_at = v_now + ttl_ms WHERE resource = p_resource
            RETURNING * INTO v_lease;
    END IF;
    v_is_first := NOT EXISTS (
        SELECT 1 FROM fencegate_leases_waiters
        WHERE resource = p_resource AND expires_at > v_now AND (p_place IS NULL OR place < p_place));

    IF (v_is_held AND v_lease.owner = p_owner) OR (NOT v_is_held AND v_is_first) THEN
        v_old := CASE WHEN v_is_held THEN to_jsonb(v_lease) END;
        INSERT INTO fencegate_leases
            VALUES (p_resource, p_owner, nextval('fencegate_leases_tokens'), p_ttl_ms, v_now, v_now + p_ttl_ms)
            ON CONFLICT (resource) DO UPDATE SET (owner, token, ttl_ms, acquired_at, expires_at) =
                (excluded.owner, excluded.token, excluded.ttl_ms, excluded.acquired_at, excluded.expires_at)
            RETURNING * INTO v_lease;
        DELETE FROM fencegate_leases_waiters WHERE place = p_place;
        -- Who is first now has to know when this lease ends.
        PERFORM fencegate_leases_tell(p_resource);
        RETURN jsonb_build_object('now', v_now, 'expired', v_expired, 'found', 'granted',
            'lease', to_jsonb(v_lease), 'superseded', v_old);
    END IF;

    IF v_is_held AND NOT p_waits THEN
        DELETE FROM fencegate_leases_waiters WHERE place = p_place;
        IF FOUND AND v_is_first THEN
            PERFORM fencegate_leases_tell(p_resource);
        END IF;
        v_place := NULL;
    ELSE
        INSERT INTO fencegate_leases_waiters
            VALUES (coalesce(p_place, nextval('fencegate_leases_places')), p_resource, v_now + p_keep_ms)
            ON CONFLICT (place) DO UPDATE SET expires_at = excluded.expires_at
            RETURNING place INTO v_place;
    END IF;
    RETURN jsonb_build_object('now', v_now, 'expired', v_expired,
        'found', CASE WHEN v_is_held THEN 'held' ELSE 'free' END,
        'lease', CASE WHEN v_is_held THEN to_jsonb(v_lease) END,
        'place', v_place, 'is_first', v_is_first);
END
$$;

-- Gives a place up.
CREATE FUNCTION fencegate_leases_leave(p_place bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_resource text;
BEGIN
    DELETE FROM fencegate_leases_waiters WHERE place = p_place RETURNING resource INTO v_resource;
    IF FOUND THEN
        PERFORM fencegate_leases_tell(v_resource);
    END IF;
END
$$;

-- Keeps places alive, and answers those that have a reason to try: the lease is free and they are
-- first, or their row is gone. A place is never made here, or one that was just left would come
-- back and keep others waiting.
CREATE FUNCTION fencegate_leases_keep(p_places bigint[], p_keep_ms bigint) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint := fencegate_leases_now();
BEGIN
    UPDATE fencegate_leases_waiters SET expires_at = v_now + p_keep_ms
        WHERE place = ANY (p_places) AND expires_at < v_now + p_keep_ms * 2 / 3;
    RETURN (
        SELECT coalesce(jsonb_agg(mine.place), '[]')
        FROM unnest(p_places) AS mine (place) LEFT JOIN fencegate_leases_waiters w USING (place)
        WHERE w.place IS NULL OR (
            NOT EXISTS (SELECT 1 FROM fencegate_leases l
                WHERE l.resource = w.resource AND l.expires_at > v_now)
            AND NOT EXISTS (SELECT 1 FROM fencegate_leases_waiters o
                WHERE o.resource = w.resource AND o.place < w.place AND o.expires_at > v_now)));
END
$$;

CREATE FUNCTION fencegate_leases_renew(
    p_resource text, p_owner text, p_token bigint, p_ttl_ms bigint
) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    v_now   bigint;
    v_lease fencegate_leases;
    v_old   bigint;
BEGIN
    SELECT * INTO v_lease FROM fencegate_leases WHERE resource = p_resource FOR UPDATE;
    IF NOT FOUND THEN
        RETURN jsonb_build_object('expired', '[]'::jsonb);
    END IF;
    v_now := fencegate_leases_now();
    IF v_lease.expires_at <= v_now THEN
        DELETE FROM fencegate_leases WHERE resource = p_resource;
        PERFORM fencegate_leases_tell(p_resource);
        RETURN jsonb_build_object('expired', jsonb_build_array(to_jsonb(v_lease)));
    END IF;
    IF v_lease.owner <> p_owner OR v_lease.token <> p_token THEN
        RETURN jsonb_build_object('expired', '[]'::jsonb);
    END IF;
    v_old := v_lease.expires_at;
    UPDATE fencegate_leases
        SET ttl_ms = coalesce(p_ttl_ms, ttl_ms), expires_at = v_now + coalesce(p_ttl_ms, ttl_ms)
        WHERE resource = p_resource RETURNING * INTO v_lease;
    IF v_lease.expires_at < v_old THEN
        PERFORM fencegate_leases_tell(p_resource);
    END IF;
    RETURN jsonb_build_object('expired', '[]'::jsonb, 'lease', to_jsonb(v_lease));
END
$$;

-- Answers `released`, `owner_mismatch` or `not_found`.
CREATE FUNCTION fencegate_leases_release(p_resource text, p_owner text, p_token bigint)
RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    v_now     bigint;
    v_lease   fencegate_leases;
    v_expired jsonb := '[]';
    v_found   text := 'not_found';
BEGIN
    SELECT * INTO v_lease FROM fencegate_leases WHERE resource = p_resource FOR UPDATE;
    IF FOUND THEN
        v_now := fencegate_leases_now();
        v_found := CASE
            WHEN v_lease.expires_at <= v_now THEN 'not_found'
            WHEN v_lease.owner <> p_owner OR v_lease.token <> p_token THEN 'owner_mismatch'
            ELSE 'released' END;
        IF v_found <> 'owner_mismatch' THEN
            DELETE FROM fencegate_leases WHERE resource = p_resource;
            PERFORM fencegate_leases_tell(p_resource);
        END IF;
        IF v_found = 'not_found' THEN
            v_expired := jsonb_build_array(to_jsonb(v_lease));
        END IF;
    END IF;
    RETURN jsonb_build_object('now', v_now, 'expired', v_expired, 'found', v_found,
        'lease', CASE WHEN v_found = 'released' THEN to_jsonb(v_lease) END);
END
$$;

CREATE FUNCTION fencegate_leases_holders(p_resources text[]) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    v_now     bigint := fencegate_leases_now();
    v_expired jsonb;
BEGIN
    -- Rows are locked in one order, so that two of these do not wait for each other.
    WITH seen AS (
        SELECT resource FROM fencegate_leases
        WHERE resource = ANY (p_resources) AND expires_at <= v_now ORDER BY resource FOR UPDATE
    ), gone AS (
        DELETE FROM fencegate_leases l USING seen WHERE l.resource = seen.resource RETURNING l.*
    ), told AS (
        SELECT to_jsonb(gone) AS lease, fencegate_leases_tell(resource) FROM gone
    )
    SELECT coalesce(jsonb_agg(lease), '[]') INTO v_expired FROM told;
    RETURN jsonb_build_object('expired', v_expired, 'live', (
        SELECT coalesce(jsonb_agg(to_jsonb(l)), '[]') FROM fencegate_leases l
        WHERE resource = ANY (p_resources) AND expires_at > v_now));
END
$$;

CREATE FUNCTION fencegate_leases_list(p_after text, p_limit bigint) RETURNS jsonb
LANGUAGE sql VOLATILE AS $$
    SELECT coalesce(jsonb_agg(to_jsonb(page) ORDER BY page.resource), '[]') FROM (
        SELECT * FROM fencegate_leases
        WHERE resource > p_after AND expires_at > fencegate_leases_now()
        ORDER BY resource LIMIT p_limit
    ) AS page
$$;

-- Deletes up to `p_limit` leases that have expired, and as many places that nobody keeps.
CREATE FUNCTION fencegate_leases_sweep(p_limit bigint) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    v_now     bigint := fencegate_leases_now();
    v_expired jsonb;
BEGIN
    DELETE FROM fencegate_leases_waiters WHERE place IN (
        SELECT place FROM fencegate_leases_waiters WHERE expires_at <= v_now
        ORDER BY expires_at LIMIT p_limit FOR UPDATE SKIP LOCKED);
    WITH gone AS (
        DELETE FROM fencegate_leases WHERE resource IN (
            SELECT resource FROM fencegate_leases WHERE expires_at <= v_now
            ORDER BY expires_at LIMIT p_limit FOR UPDATE SKIP LOCKED)
        RETURNING *
    ), told AS (
        SELECT to_jsonb(gone) AS lease, fencegate_leases_tell(resource) FROM gone
    )
    SELECT coalesce(jsonb_agg(lease), '[]') INTO v_expired FROM told;
    RETURN v_expired;
END
$$;
