//! A new configuration while the gateway serves: at SIGHUP, and when the file has changed.
//!
//! It is taken over whole or not at all: everything is loaded and prepared before anything is changed. The file is
//! looked at by its content, since a time stamp may be the same after a quick change and a name may be a link that
//! is turned (a ConfigMap of Kubernetes); notifications of the file system do not reach through either. Two looks
//! have to find the same, as nobody wants half of a file.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::backend::bounds;
use super::measures;
use crate::clock::Clock;
use crate::config::{self, Config, Loaded, Sources};
use crate::fences::Fences;
use crate::gateway::{Opened, Prepared, Reconfigure};
use crate::http_server::ApiBounds;
use crate::live_file::Seen;
use crate::metrics::{Census, ReloadMetrics};
use crate::tls::Certificates;

/// Where changes of what is allowed are logged.
const AUDIT: &str = "fencegate::audit";
/// How often the file is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long the end of the gateway waits for a file that is being read.
const LAST_READ: Duration = Duration::from_secs(1);

/// The configuration that is in use.
#[derive(Clone)]
pub(super) struct Present(Arc<Mutex<Arc<Config>>>);

/// What a reload changes.
pub(super) struct Reloader {
    pub(super) sources: Arc<Sources>,
    /// What runs.
    pub(super) loaded: Arc<Loaded>,
    pub(super) present: Present,
    pub(super) gateway: Arc<Reconfigure>,
    pub(super) fences: Arc<Fences>,
    pub(super) api: ApiBounds,
    pub(super) census: Arc<Census>,
    pub(super) certificates: Certificates,
    pub(super) clock: Clock,
    pub(super) metrics: ReloadMetrics,
}

/// The task that takes new configurations over.
pub(super) struct Reloads {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// Everything that a new configuration needs.
struct Ready {
    loaded: Loaded,
    config: Arc<Config>,
    gateway: Prepared,
    opened: Vec<Opened>,
}

impl Present {
    pub(super) fn new(config: Arc<Config>) -> Present {
        Present(Arc::new(Mutex::new(config)))
    }

    pub(super) fn get(&self) -> Arc<Config> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn set(&self, config: Arc<Config>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = config;
    }
}

impl Reloads {
    pub(super) fn start(asked: Arc<Notify>, reloader: Reloader) -> Reloads {
        let stop = CancellationToken::new();
        let task = tokio::spawn(reloader.run(asked, stop.clone()));
        Reloads { stop, task }
    }

    /// Nothing changes any more, and nobody keeps the gateway from ending.
    pub(super) async fn stop(mut self) {
        self.stop.cancel();
        match timeout(LAST_READ, &mut self.task).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::error!(%error, "taking new configurations over had failed");
            }
            // It waits for a file, on a network that is down, say.
            Err(_) => self.task.abort(),
        }
    }
}

impl Reloader {
    /// Takes new configurations over until `stop`.
    pub(super) async fn run(mut self, hangup: Arc<Notify>, stop: CancellationToken) {
        let file = self.loaded.file.clone();
        let mut file = file.map(|(path, text)| Watched::new(&path, Ok(text)));
        loop {
            let why = tokio::select! {
                () = stop.cancelled() => return,
                () = hangup.notified() => "SIGHUP",
                () = changed(&mut file) => "the file has changed",
            };
            if let Some(file) = &mut file {
                // Before it is read: what changes after that is another change.
                file.settle().await;
            }
            self.reload(why).await;
        }
    }

    async fn reload(&mut self, why: &'static str) {
        let (sources, running) = (Arc::clone(&self.sources), Arc::clone(&self.loaded));
        let (gateway, certificates) = (Arc::clone(&self.gateway), self.certificates.clone());
        // Apart: a file may take its time, and so does comparing many routes.
        let ready = tokio::task::spawn_blocking(move || {
            // Whoever asks by a signal means these files, too. What is refused of them is said by themselves.
            certificates.reload();
            for file in running.config.live_files() {
                let _ = file.reload();
            }
            prepare(&sources, &running, &gateway)
        });
        match ready.await.unwrap_or_else(|error| Err(vec![error.to_string()])) {
            Ok(ready) => self.apply(ready, why),
            Err(mistakes) => {
                self.metrics.refused();
                let mistakes = mistakes.join("; ");
                tracing::error!(
                    why,
                    mistakes,
                    "a new configuration was refused; the old one stays in use"
                );
            }
        }
    }

    fn apply(&mut self, ready: Ready, why: &'static str) {
        let Ready { loaded, config, gateway, opened } = ready;
        self.fences.bound(bounds(&config));
        self.api.set(config.limits.api);
        self.census.limit(measures(&config));
        self.gateway.apply(gateway);
        self.present.set(config);
        self.metrics.applied(self.clock.wall());
        for warning in &loaded.warnings {
            tracing::warn!("{warning}");
        }
        for Opened { route, what } in opened {
            tracing::warn!(target: AUDIT, route, what, "a route protects less than before");
        }
        self.loaded = Arc::new(loaded);
        tracing::info!(target: AUDIT, why, "a new configuration is in use");
    }
}

/// Everything that can fail; nothing is changed yet.
fn prepare(
    sources: &Sources,
    running: &Loaded,
    gateway: &Reconfigure,
) -> Result<Ready, Vec<String>> {
    let mut loaded = config::load(sources)
        .map_err(|mistakes| mistakes.to_string().lines().map(str::to_owned).collect::<Vec<_>>())?;
    let mut mistakes = loaded.needs_restart(running);
    let opened = gateway.judge(&loaded.config).unwrap_or_else(|reasons| {
        mistakes.extend(reasons);
        Vec::new()
    });
    if !mistakes.is_empty() {
        return Err(mistakes);
    }
    loaded.config.keep_files(&running.config);
    let config = Arc::new(loaded.config.clone());
    let gateway = gateway.prepare(&config).map_err(|error| vec![error.to_string()])?;
    Ok(Ready { loaded, config, gateway, opened })
}

/// The text of the file, or why there is none.
type Content = Result<String, String>;

/// The file, as it was seen.
struct Watched {
    path: Arc<Path>,
    seen: Seen<Content>,
}

impl Watched {
    fn new(path: &Path, content: Content) -> Watched {
        Watched { path: path.into(), seen: Seen::new(content) }
    }

    async fn read(&self) -> Content {
        let path = Arc::clone(&self.path);
        let read = tokio::task::spawn_blocking(move || config::read_text(&path)).await;
        read.unwrap_or_else(|error| Err(error.to_string()))
    }

    async fn settle(&mut self) {
        self.seen.settle(self.read().await);
    }

    /// Whether there is something new that has not changed since the last look.
    async fn look(&mut self) -> bool {
        self.seen.look(self.read().await)
    }
}

async fn changed(file: &mut Option<Watched>) {
    let Some(file) = file else { return std::future::pending().await };
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        if file.look().await {
            return;
        }
    }
}
