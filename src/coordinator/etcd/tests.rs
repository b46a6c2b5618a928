mod gateways;
mod history;
mod layouts;
mod others;
mod trouble;

use std::time::Duration;

use prometheus::Registry;

use super::*;
use crate::coordinator::contract::{self, Subject};
use crate::servers::etcd::Etcd as Server;

const LONG: Duration = Duration::from_secs(3600);
const NO_WAIT: Duration = Duration::ZERO;

/// What a test of etcd is made of.
struct Run {
    etcd: Etcd,
    metrics: LeaseMetrics,
    registry: Registry,
}

impl Run {
    fn on(server: &Server, layout: Layout) -> Run {
        Run::with(&settings(server, layout))
    }

    fn with(settings: &EtcdSettings) -> Run {
        let registry = Registry::new();
        let metrics = LeaseMetrics::register(&registry).unwrap();
        let etcd = Etcd::start(settings, None, Clock::new(), &TaskTracker::new(), metrics.clone());
        Run { etcd, metrics, registry }
    }

    fn count(&self, name: &str) -> f64 {
        let families = self.registry.gather();
        let family = families.iter().find(|family| family.name() == name).expect("it exists");
        family.get_metric()[0].get_counter().get_value()
    }
}

fn settings(server: &Server, layout: Layout) -> EtcdSettings {
    EtcdSettings {
        endpoints: server.endpoints(),
        prefix: "/fencegate/leases".to_owned(),
        layout,
        user: None,
        tls: None,
    }
}

async fn subject(layout: Layout) -> Subject {
    let server = Server::single();
    let Run { etcd, metrics, .. } = Run::on(&server, layout);
    Subject {
        coordinator: Arc::new(etcd),
        metrics,
        shortest_ttl: Duration::from_secs(1),
        _keep: Box::new(server),
    }
}

/// Transactions that this etcd has answered.
fn txns(server: &Server) -> u32 {
    let metric = "grpc_server_handled_total{grpc_code=\"OK\",grpc_method=\"Txn\"";
    let metrics = server.metrics(0);
    let line = metrics.lines().find(|line| line.starts_with(metric));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0)
}
