//! Merges the file, the environment and flags, and makes the configuration of them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use tracing_subscriber::EnvFilter;

use super::keys::{Section, Slot};
use super::mistakes::{Mistakes, Origin, shown};
use super::settings::{Settings, Value};
use super::{Config, build, check, environment, file, show};
use crate::telemetry;

/// Where a configuration comes from. Nothing else is read but files that are named in it.
/// There is no `Debug`: any of it may be a secret.
#[derive(Clone, Default)]
pub struct Sources {
    /// The TOML file; if `None`, the one that `FENCEGATE_CONFIG` names, if it is set.
    pub file: Option<PathBuf>,
    /// The environment; variables without the prefix `FENCEGATE_` are passed over.
    pub environment: BTreeMap<OsString, OsString>,
    /// What flags say; it wins over the environment, which wins over the file.
    pub overrides: Vec<Override>,
    /// What `--log` says; if `None`, what `FENCEGATE_LOG` says.
    pub log: Option<String>,
}

/// A value from a flag.
#[derive(Clone)]
pub struct Override {
    /// The key: `listen.proxy`, `upstream.0.url`.
    pub path: String,
    /// Its value, as it would be in the environment.
    pub value: String,
    /// The flag's name with its dashes, for mistakes.
    pub flag: &'static str,
}

/// A configuration that holds, and what is to be said about it.
#[derive(Clone)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// What is allowed but worth a second look, one line each.
    pub warnings: Vec<String>,
    /// What is logged.
    pub log: EnvFilter,
    /// The file, if there is one, and its text, which may hold secrets.
    pub file: Option<(PathBuf, String)>,
    pub(super) settings: Settings,
}

/// Without the settings: one that was read from a file may be a secret.
impl fmt::Debug for Loaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Loaded { config, warnings, log, file, settings: _ } = self;
        let file = file.as_ref().map(|(path, _)| path);
        f.debug_struct("Loaded")
            .field("config", config)
            .field("warnings", warnings)
            .field("log", log)
            .field("file", &file)
            .finish()
    }
}

impl Loaded {
    /// The effective configuration as a file that loads to the same, with the origin of each value
    /// that somebody set.
    #[must_use]
    pub fn to_toml(&self) -> String {
        show::toml(&self.config, &self.settings)
    }
}

/// Loads the configuration.
///
/// # Errors
/// Every mistake in it, sorted by place.
pub fn load(sources: &Sources) -> Result<Loaded, Mistakes> {
    let mut mistakes = Mistakes::default();
    let mut settings = Settings::default();
    let path = path(sources, &mut mistakes);
    let text = path.as_deref().map(|path| file::gather(path, &mut settings, &mut mistakes));
    environment::gather(&sources.environment, &mut settings, &mut mistakes);
    let log = log(sources, &mut mistakes);
    if let Some(None) = text {
        // What the file says is not known, so nothing can be said to be missing.
        return Err(mistakes.sorted());
    }
    environment::apply(&sources.overrides, &mut settings, &mut mistakes);
    store_url_from_file(&mut settings, &mut mistakes);
    without_file(&mut settings);
    let whole = path.as_deref().map_or(Origin::Flag("--upstream"), whole_file);
    check::all(&settings, &whole, &mut mistakes);
    match (build::config(&settings, &mut mistakes), log) {
        (Some(config), Some(log)) if mistakes.is_empty() => {
            let warnings = check::warnings(&config, &settings);
            let file = path.zip(text.flatten());
            Ok(Loaded { config, warnings, log, file, settings })
        }
        _ => Err(mistakes.sorted()),
    }
}

fn whole_file(path: &Path) -> Origin {
    Origin::File { file: file::shown_name(path), line: None }
}

/// Not a key of the file, as the file's own mistakes do not depend on it.
fn log(sources: &Sources, mistakes: &mut Mistakes) -> Option<EnvFilter> {
    let variable = environment::LOG_VARIABLE;
    let (place, text) = match &sources.log {
        Some(text) => (Origin::Flag("--log"), Ok(text.as_str())),
        None => (
            Origin::Environment(variable.to_owned()),
            sources
                .environment
                .get(&OsString::from(variable))
                .map_or(Ok("info"), |value| environment::text(value)),
        ),
    };
    let filter = text.and_then(telemetry::filter);
    filter.map_err(|why| mistakes.push(&place, format!("{why}; for example info"))).ok()
}

fn path(sources: &Sources, mistakes: &mut Mistakes) -> Option<PathBuf> {
    let variable = environment::CONFIG_VARIABLE;
    sources.file.clone().or_else(|| {
        let value = sources.environment.get(&OsString::from(variable))?;
        if value.is_empty() {
            let place = Origin::Environment(variable.to_owned());
            mistakes.push(&place, environment::EMPTY);
            return None;
        }
        Some(PathBuf::from(value))
    })
}

/// Replaces `store.url_file` by what is in it, unless a later layer gives `store.url`.
fn store_url_from_file(settings: &mut Settings, mistakes: &mut Mistakes) {
    let slot = |name| Slot { section: Section::Store, index: 0, name };
    let (url, url_file) = (slot("url"), slot("url_file"));
    let Some((value, origin)) = settings.get(url_file) else { return };
    let (value, origin) = (value.clone(), origin.clone());
    if let Some((_, other)) = settings.get(url) {
        if other.layer() > origin.layer() {
            settings.unset(url_file);
            return;
        }
        if other.layer() == origin.layer() {
            mistakes
                .push(&origin, format!("store.url_file: store.url is set too ({other}); give one"));
            return;
        }
    }
    let Value::Text(path) = value else {
        mistakes.push(&origin, "store.url_file: expected the name of a file, in quotes");
        return;
    };
    match file::read_text(Path::new(&path)) {
        Ok(text) => settings.set(url, Value::Text(text.trim_end().to_owned()), origin),
        Err(why) => mistakes.push(&origin, format!("store.url_file: {} {why}", shown(&path))),
    }
}

/// Where the file names neither upstreams nor routes, one route takes all paths, so that
/// `--upstream` or one environment variable is enough.
fn without_file(settings: &mut Settings) {
    let from_file = [Section::Upstream, Section::Route].map(|s| settings.in_file(s).is_some());
    let has_others = settings.tables(Section::Route).any(|(index, _)| index != 0);
    if from_file.contains(&true) || has_others {
        return;
    }
    let path = Slot { section: Section::Route, index: 0, name: "path" };
    if settings.get(path).is_none() {
        settings.set(path, Value::Text("/{*rest}".to_owned()), Origin::Default);
    }
}
