use std::time::Duration;

use super::*;
use crate::store::HistoryStore;
use crate::store::contract::{self, Subject};
use crate::store::history_contract::{self, HistorySubject};

/// A file, and the run that has it open.
struct Run {
    directory: tempfile::TempDir,
    fences: Option<SqliteFences>,
    instance: InstanceId,
    tasks: TaskTracker,
}

impl Run {
    async fn first() -> Run {
        let directory = tempfile::tempdir().unwrap();
        let instance = InstanceId::from_i64(0);
        let mut run = Run { directory, fences: None, instance, tasks: TaskTracker::new() };
        run.open().await;
        run
    }

    async fn open(&mut self) {
        let clock = Clock::new();
        self.tasks = TaskTracker::new();
        let path = self.directory.path().join("store.db");
        let metrics = crate::metrics::StoreMetrics::register(&prometheus::Registry::new()).unwrap();
        let database = Database::open(&path, clock, &self.tasks, metrics).await.unwrap();
        self.instance = database.instance();
        self.fences = Some(SqliteFences::new(&database, clock, &self.tasks));
    }
}

#[async_trait(?Send)]
impl Subject for Run {
    fn fences(&self) -> &contract::Fences {
        self.fences.as_ref().expect("a run is on")
    }

    fn instance(&self) -> InstanceId {
        self.instance
    }

    async fn next_run(&mut self) {
        self.fences = None;
        self.tasks.close();
        let ended = tokio::time::timeout(Duration::from_secs(20), self.tasks.wait()).await;
        ended.expect("nobody holds the store any more");
        self.open().await;
    }
}

impl HistorySubject for Run {
    fn history(&self) -> &dyn HistoryStore {
        self.fences.as_ref().expect("a run is on")
    }
}

contract::tests!(Run::first());
history_contract::tests!(Run::first());
contract::sole_tests!(Run::first());
