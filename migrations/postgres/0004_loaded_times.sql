-- What fencegate_load answers, and when each mark was raised: {resources: [name]} →
-- [[resource, epoch, token, confirmed, milliseconds since 1970]]. The time is for people; it decides nothing.
-- A function of its own, as instances of the version before call the other one.
CREATE FUNCTION fencegate_load_with_times(asked jsonb) RETURNS jsonb LANGUAGE plpgsql STABLE
    SET enable_seqscan = off
AS $$
BEGIN
    RETURN (
        SELECT coalesce(jsonb_agg(jsonb_build_array(resource, epoch, token, confirmed,
            floor(extract(epoch FROM updated_at) * 1000)::bigint)), '[]')
        FROM fences WHERE resource IN (SELECT jsonb_array_elements_text(asked -> 'resources')));
END $$;
