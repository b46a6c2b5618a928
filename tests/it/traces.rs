//! One span per decision, at a collector that decodes them by the protocol's own types.

use std::time::{SystemTime, UNIX_EPOCH};

use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;

use crate::metrics::scrape;
use crate::support::collector::{Collector, attribute, try_attribute};
use crate::support::downstream::{Behaviour, Downstream};
use crate::support::gateway::Gateway;
use crate::support::http::{Connection, request, send};
use crate::support::wait_until;

const CLIENT: &str = "00f067aa0ba902b7";

fn guard(api: &Downstream, telemetry: &str) -> Gateway {
    Gateway::with_config(&format!(
        "[[upstream]]\nname = \"api\"\nurl = \"http://{}\"\nsettle = \"1s\"\n\
         [[route]]\nname = \"ordered\"\npath = \"/ordered/{{*rest}}\"\ntokens = \"ordered\"\n\
         [[route]]\nname = \"watched\"\npath = \"/watched/{{*rest}}\"\nmode = \"observe\"\n\
         {telemetry}",
        api.address
    ))
}

fn exporting(api: &Downstream, collector: &Collector) -> Gateway {
    let telemetry = format!(
        "[telemetry]\notlp = \"http://{}\"\nservice = \"payments-fence\"\n",
        collector.address
    );
    guard(api, &telemetry)
}

fn trace(number: u64) -> String {
    format!("{number:032x}")
}

/// Sends a request of a trace of its own.
fn traced(
    gateway: &Gateway,
    method: &str,
    path: &str,
    token: &str,
    number: u64,
    flags: &str,
) -> u16 {
    let traceparent = format!("00-{}-{CLIENT}-{flags}", trace(number));
    let fields = [("Fencing-Token", token), ("traceparent", &traceparent)];
    send(gateway.proxy, method, path, &fields, b"x").status
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The one span of a trace.
#[track_caller]
fn of_trace(spans: &[Span], number: u64) -> Span {
    let found: Vec<&Span> =
        spans.iter().filter(|span| hex(&span.trace_id) == trace(number)).collect();
    let [span] = found[..] else { panic!("{} spans of {number}", found.len()) };
    assert_eq!(hex(&span.parent_span_id), CLIENT);
    assert_eq!(span.flags & 1, 1);
    span.clone()
}

/// Whether it lies between `began`, in nanoseconds since 1970, and now.
#[track_caller]
fn assert_is_since(span: &Span, began: u128) {
    let ended = SystemTime::now().duration_since(UNIX_EPOCH).expect("later").as_nanos();
    let (start, end) = (u128::from(span.start_time_unix_nano), u128::from(span.end_time_unix_nano));
    // The gateway's clock has milliseconds for the start.
    assert!(start + 1_000_000 > began && start < end && end <= ended, "{span:?}");
}

#[track_caller]
fn assert_says(span: &Span, attributes: &[(&str, &str)]) {
    for (key, value) in attributes {
        assert_eq!(attribute(&span.attributes, key), *value, "{key} of {span:?}");
    }
}

#[test]
fn each_decision_of_a_sampled_trace_is_one_span_below_the_clients() {
    let (api, collector) = (Downstream::start(), Collector::start());
    let mut gateway = exporting(&api, &collector);
    let began = SystemTime::now().duration_since(UNIX_EPOCH).expect("later").as_nanos();
    assert_eq!(traced(&gateway, "PUT", "/ordered/x", "5", 1, "01"), 200);
    assert_eq!(traced(&gateway, "PUT", "/ordered/x", "4", 2, "01"), 412);
    assert_eq!(traced(&gateway, "PUT", "/watched/x", "77", 3, "01"), 200);
    assert_eq!(traced(&gateway, "PUT", "/nowhere", "5", 4, "01"), 404);
    api.behave("/ordered/lost", Behaviour::ResetInstead);
    assert_eq!(traced(&gateway, "PUT", "/ordered/lost", "5", 5, "01"), 502);
    // Not sampled, not of any trace, and no decision.
    assert_eq!(traced(&gateway, "PUT", "/ordered/x", "5", 6, "00"), 200);
    assert_eq!(gateway.put("/ordered/x", 5, "x").status, 200);
    assert_eq!(traced(&gateway, "GET", "/ordered/x", "5", 7, "01"), 200);

    wait_until("five spans", || collector.spans().len() >= 5);

    let spans = collector.spans();
    assert_eq!(spans.len(), 5, "{spans:?}");
    let [admitted, stale, observed, nowhere, lost] =
        [1, 2, 3, 4, 5].map(|nth| of_trace(&spans, nth));
    assert_says(
        &admitted,
        &[
            ("fencegate.route", "ordered"),
            ("fencegate.decision", "admitted"),
            ("fencegate.outcome", "answered"),
            ("fencegate.resource", "/ordered/x"),
            ("fencegate.token", "5"),
            ("fencegate.mark", "5"),
            ("http.request.method", "PUT"),
            ("http.response.status_code", "200"),
        ],
    );
    assert_eq!(try_attribute(&admitted.attributes, "fencegate.code"), None);
    assert_says(
        &stale,
        &[
            ("fencegate.decision", "refused"),
            ("fencegate.code", "stale_fencing_token"),
            ("fencegate.outcome", "not_forwarded"),
            ("fencegate.token", "4"),
            ("fencegate.mark", "5"),
            ("http.response.status_code", "412"),
        ],
    );
    assert_says(
        &observed,
        &[
            ("fencegate.route", "watched"),
            ("fencegate.decision", "observed"),
            ("fencegate.code", "fencing_token_not_held"),
            ("fencegate.outcome", "forwarded"),
        ],
    );
    assert_says(&nowhere, &[("fencegate.decision", "refused"), ("fencegate.code", "no_route")]);
    assert_says(
        &lost,
        &[
            ("fencegate.decision", "admitted"),
            ("fencegate.code", "upstream_outcome_unknown"),
            ("fencegate.outcome", "unknown"),
        ],
    );
    let is_error =
        |span: &Span| span.status.as_ref().is_some_and(|status| status.code() == StatusCode::Error);
    assert_eq!([&admitted, &stale, &lost].map(is_error), [false, false, true]);
    spans.iter().for_each(|span| assert_is_since(span, began));
    let resource =
        collector.requests()[0].resource_spans[0].resource.clone().expect("there is one");
    assert_eq!(attribute(&resource.attributes, "service.name"), "payments-fence");
    assert_eq!(gateway.stop().code(), Some(0));
    assert_eq!(collector.spans().len(), 5);
}

#[test]
fn what_the_api_records_is_below_the_gateways_span_and_else_below_the_clients() {
    let (api, collector) = (Downstream::start(), Collector::start());
    let gateway = exporting(&api, &collector);
    assert_eq!(traced(&gateway, "PUT", "/ordered/x", "5", 1, "01"), 200);
    assert_eq!(traced(&gateway, "PUT", "/ordered/x", "5", 2, "00"), 200);
    assert_eq!(traced(&gateway, "GET", "/ordered/x", "5", 3, "01"), 200);
    wait_until("the span", || collector.spans().len() == 1);
    let span = of_trace(&collector.spans(), 1);
    let seen = api.seen();
    let sent = seen.iter().map(|seen| seen.header("traceparent").expect("it was sent").to_owned());
    let expected = [
        format!("00-{}-{}-01", trace(1), hex(&span.span_id)),
        format!("00-{}-{CLIENT}-00", trace(2)),
        format!("00-{}-{CLIENT}-01", trace(3)),
    ];
    assert_eq!(sent.collect::<Vec<_>>(), expected);
}

#[test]
fn a_write_whose_client_left_has_its_span_when_it_is_over() {
    let (api, collector) = (Downstream::start(), Collector::start());
    let gateway = exporting(&api, &collector);
    api.behave("/ordered/x", Behaviour::Hold);
    let traceparent = format!("00-{}-{CLIENT}-01", trace(1));
    let fields = [("Fencing-Token", "5"), ("traceparent", traceparent.as_str())];
    let mut client = Connection::open(gateway.proxy);
    client.write(request("PUT", "/ordered/x", &fields, b"x"));
    api.wait_for(1);
    drop(client);
    api.let_go("/ordered/x");
    wait_until("its span", || collector.spans().len() == 1);
    let span = of_trace(&collector.spans(), 1);
    assert_says(&span, &[("fencegate.decision", "admitted"), ("fencegate.outcome", "answered")]);
}

#[test]
fn what_was_decided_last_is_exported_at_the_shutdown() {
    let (api, collector) = (Downstream::start(), Collector::start());
    let mut gateway = exporting(&api, &collector);
    for number in 1..=100 {
        assert_eq!(traced(&gateway, "PUT", "/ordered/x", "5", number, "01"), 200);
    }
    assert_eq!(gateway.stop().code(), Some(0));
    let spans = collector.spans();
    (1..=100).for_each(|number| drop(of_trace(&spans, number)));
    assert_eq!(spans.len(), 100);
}

#[test]
fn a_collector_that_is_away_for_a_moment_loses_nothing_and_what_it_rejects_is_counted() {
    let (api, collector) = (Downstream::start(), Collector::start());
    collector.refuse_first(&[503, 429]);
    let gateway = exporting(&api, &collector);
    assert_eq!(traced(&gateway, "PUT", "/ordered/x", "5", 1, "01"), 200);
    wait_until("the span", || collector.spans().len() == 1);
    let count = |result: &str| {
        scrape(&gateway).value(&format!("fencegate_trace_spans_total{{result=\"{result}\"}}"))
    };
    wait_until("it is counted", || count("exported") == 1.0);
    collector.reject(1);
    assert_eq!(traced(&gateway, "PUT", "/ordered/x", "5", 2, "01"), 200);
    wait_until("the rejected one is counted", || count("failed") == 1.0);
    assert_eq!((count("exported"), count("dropped")), (1.0, 0.0));
}

#[test]
fn a_collector_that_is_silent_holds_nobody_up_and_what_it_does_not_take_is_counted() {
    let (api, collector) = (Downstream::start(), Collector::start());
    collector.fall_silent();
    let mut gateway = exporting(&api, &collector);
    let mut client = Connection::open(gateway.proxy);
    // More than the queue and a batch hold.
    for number in 1..=6000_u64 {
        let traceparent = format!("00-{}-{CLIENT}-01", trace(number));
        let bytes = request("PUT", "/nowhere", &[("traceparent", &traceparent)], b"");
        assert_eq!(client.try_exchange(bytes).expect("an answer").status, 404);
    }
    let dropped = scrape(&gateway).value("fencegate_trace_spans_total{result=\"dropped\"}");
    assert!(dropped > 0.0, "{dropped}");
    assert_eq!(gateway.stop().code(), Some(0), "the shutdown does not wait for it either");
}
