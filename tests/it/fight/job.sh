# A worker's job: numbered contents to one file, with plain curl. It knows nothing of leases, and
# whatever curl answers, it goes on. What it did is noted in a file, before and after each write.
echo $$ > "$FIGHT_DIR/$FIGHT_JOB.pid"

# put BYTES CURL-ARGUMENTS...
put() {
    sequence=$((sequence + 1))
    bytes=$1
    shift
    name=$FENCING_TOKEN-$worker-$sequence-$bytes
    body=$FIGHT_DIR/$worker.body
    yes "$name" | head -c "$bytes" > "$body"
    echo "$name sent" >> "$FIGHT_DIR/notes"
    status=$(curl -q -s -o "$FIGHT_DIR/$worker.answer" -w '%{http_code}' -m "$patience" -X PUT \
        -H "X-Write: $name" -H 'Expect:' "$@")
    echo "$name $status" >> "$FIGHT_DIR/notes"
    if [ "$status" = 412 ]; then
        cat "$FIGHT_DIR/$worker.answer" >> "$FIGHT_DIR/refusals"
        echo >> "$FIGHT_DIR/refusals"
    fi
}

put_somehow() {
    case $(((sequence + FIGHT_ODD) % 5)) in
    0) put 300 --noproxy '' -x "$FENCING_PROXY" -T "$FIGHT_DIR/$worker.body" "$FIGHT_API$FIGHT_FILE" ;;
    1) put 500 --noproxy '*' -T "$FIGHT_DIR/$worker.body" "$FENCING_PROXY$FIGHT_FILE" ;;
    2) put 700 --noproxy '*' -H "Fencing-Token: $FENCING_TOKEN" \
        -T "$FIGHT_DIR/$worker.body" "$FIGHT_API$FIGHT_FILE" ;;
    # Larger than what the gateway buffers, and slow: it is in flight for long.
    3) put 150000 --noproxy '' -x "$FENCING_PROXY" --limit-rate 150k \
        -T "$FIGHT_DIR/$worker.body" "$FIGHT_API$FIGHT_FILE" ;;
    # Chunked, and with a token that it made up.
    4) put 900 --noproxy '' -x "$FENCING_PROXY" -H 'Fencing-Token: 9223372036854775807' \
        -H 'Transfer-Encoding: chunked' -T "$FIGHT_DIR/$worker.body" "$FIGHT_API$FIGHT_FILE" ;;
    esac
}

sequence=0
worker=$FIGHT_JOB
patience=$FIGHT_PATIENCE

if [ "$1" = rogue ]; then
    # It left the process group, and keeps the token for as long as it likes.
    worker=$FIGHT_JOB.rogue
    while [ "$sequence" -lt 15 ]; do
        put 400 --noproxy '*' -H "Fencing-Token: $FENCING_TOKEN" \
            -T "$FIGHT_DIR/$worker.body" "$FIGHT_DIRECT$FIGHT_FILE"
        sleep 0.2
        # Longer than older writes may take once a newer one waits.
        put 140000 --noproxy '*' -H "Fencing-Token: $FENCING_TOKEN" --limit-rate 50k \
            -T "$FIGHT_DIR/$worker.body" "$FIGHT_DIRECT$FIGHT_FILE"
    done
    exit
fi

if [ "$FIGHT_ROGUE" = yes ]; then
    setsid sh "$0" rogue &
fi
while [ "$sequence" -lt "$FIGHT_WRITES" ]; do
    put_somehow
    sleep 0.05
done
