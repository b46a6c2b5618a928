//! A collector of OpenTelemetry: takes OTLP over HTTP, and decodes it by the protocol's own types.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;

/// It ends with the process.
#[derive(Clone)]
pub struct Collector {
    pub address: SocketAddr,
    state: Arc<(Mutex<State>, Condvar)>,
}

#[derive(Default)]
struct State {
    requests: Vec<ExportTraceServiceRequest>,
    is_silent: bool,
    rejects: i64,
    /// Answers with these before it takes anything.
    first: Vec<u16>,
}

impl Collector {
    pub fn start() -> Collector {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let collector = Collector { address, state: Arc::default() };
        let accepting = collector.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let collector = accepting.clone();
                thread::spawn(move || collector.serve(&stream));
            }
        });
        collector
    }

    /// From now on it takes requests and says nothing.
    pub fn fall_silent(&self) {
        self.state.0.lock().expect("no panic in there").is_silent = true;
    }

    /// From now on it says that it left out so many spans of each request.
    pub fn reject(&self, spans: i64) {
        self.state.0.lock().expect("no panic in there").rejects = spans;
    }

    /// Answers the next requests with these statuses.
    pub fn refuse_first(&self, statuses: &[u16]) {
        self.state.0.lock().expect("no panic in there").first = statuses.to_vec();
    }

    pub fn requests(&self) -> Vec<ExportTraceServiceRequest> {
        self.state.0.lock().expect("no panic in there").requests.clone()
    }

    /// All spans that it took, in order.
    pub fn spans(&self) -> Vec<Span> {
        let resources = self.requests().into_iter().flat_map(|request| request.resource_spans);
        let scopes = resources.flat_map(|resource| resource.scope_spans);
        scopes.flat_map(|scope| scope.spans).collect()
    }

    fn serve(&self, mut stream: &TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().expect("a socket can be shared"));
        while let Some((target, kind, body)) = read(&mut reader) {
            assert_eq!((target.as_str(), kind.as_str()), ("/v1/traces", "application/x-protobuf"));
            let request = ExportTraceServiceRequest::decode(&*body).expect("OTLP");
            let mut state = self.state.0.lock().expect("no panic in there");
            if state.is_silent {
                continue;
            }
            let status = if state.first.is_empty() { 200 } else { state.first.remove(0) };
            let mut answer = ExportTraceServiceResponse::default();
            if status == 200 {
                state.requests.push(request);
                answer.partial_success = (state.rejects > 0).then(|| ExportTracePartialSuccess {
                    rejected_spans: state.rejects,
                    error_message: "as the test wants it".to_owned(),
                });
            }
            drop(state);
            let body = answer.encode_to_vec();
            let head = format!("HTTP/1.1 {status} x\r\nContent-Length: {}\r\n\r\n", body.len());
            if stream.write_all(&[head.as_bytes(), &body].concat()).is_err() {
                return;
            }
        }
    }
}

fn read(reader: &mut BufReader<TcpStream>) -> Option<(String, String, Vec<u8>)> {
    let (mut target, mut kind, mut length) = (String::new(), String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end();
        match line.split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("content-type") => kind = value.into(),
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = value.parse().ok()?;
            }
            Some(_) => {}
            None if line.is_empty() => break,
            None => target = line.split(' ').nth(1)?.to_owned(),
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((target, kind, body))
}

/// An attribute as a text; panics if it is not there.
#[track_caller]
pub fn attribute(attributes: &[KeyValue], key: &str) -> String {
    try_attribute(attributes, key).unwrap_or_else(|| panic!("no {key} in {attributes:?}"))
}

pub fn try_attribute(attributes: &[KeyValue], key: &str) -> Option<String> {
    let found = attributes.iter().find(|attribute| attribute.key == key)?;
    match found.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text.clone()),
        Value::IntValue(number) => Some(number.to_string()),
        other => panic!("{key} is {other:?}"),
    }
}
