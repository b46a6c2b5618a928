//! The way to the server: every way in which it can be wrong has its own answer.

use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions, Connection};
use tokio::time::timeout;

use super::migrate::{self, MigrateOutcome};
use super::{CONNECT_WITHIN, PostgresUrl};

/// What the configuration says of a PostgreSQL store.
#[derive(Clone, Debug)]
pub struct PostgresSettings {
    /// Where calls go; may be a pooler.
    pub pooled: PostgresUrl,
    /// The server itself: for `LISTEN` and migrations.
    pub direct: PostgresUrl,
    /// Connections of the pool, at most.
    pub connections: u32,
    /// Whether the start brings the schema up to date, or only checks that it is.
    pub migrate: Migrate,
    /// How long this instance may admit after a renewal without hearing from the store again.
    pub instance_ttl: Duration,
}

/// When the schema is brought up to date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Migrate {
    /// At each start.
    AtStart,
    /// By `fencegate migrate` alone: the start refuses an older schema.
    ByCommand,
}

/// Why a server cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Nothing answers there.
    #[error("PostgreSQL at {0} does not answer; start it, or mend store.url")]
    Unreachable(String, #[source] sqlx::Error),
    /// It does not answer in time.
    #[error("PostgreSQL at {0} did not answer within 5 s")]
    Silent(String),
    /// It lets this user not in.
    #[error("PostgreSQL at {0} refuses the user, the password or the database of store.url")]
    Refused(String, #[source] sqlx::Error),
    /// A pooler answers where only the server itself will do.
    #[error(
        "a pooler answers at {0}, and the start, migrations and LISTEN need the server itself; name \
         it in store.listen_url"
    )]
    Pooler(String, #[source] sqlx::Error),
    /// No transport security could be agreed on.
    #[error("PostgreSQL at {0}: TLS failed; see sslmode and sslrootcert in store.url")]
    Tls(String, #[source] sqlx::Error),
    /// It is a standby.
    #[error("PostgreSQL at {0} is a standby; name the primary in store.url")]
    Standby(String),
    /// What it confirms may be lost.
    #[error("PostgreSQL at {0} does not keep what it confirms: {1}")]
    NotDurable(String, String),
    /// The schema is from a later version.
    #[error(
        "the database at {0} was written by a newer Fencegate (its schema has migration {1}, which \
         this version does not know); start that version or a later one"
    )]
    NewerSchema(String, i64),
    /// The schema is from an earlier version, or not there.
    #[error("the schema of the database at {0} is not up to date; run `fencegate migrate`")]
    OlderSchema(String),
    /// The schema could not be brought up to date.
    #[error("the schema of the database at {0} cannot be migrated")]
    Migrate(String, #[source] sqlx::migrate::MigrateError),
    /// Anything else.
    #[error("PostgreSQL at {0} cannot be used as a store")]
    Other(String, #[source] sqlx::Error),
}

/// Checks the server and its schema, and answers how to connect to it.
pub(super) async fn check(
    settings: &PostgresSettings,
) -> Result<(PgConnectOptions, PgConnectOptions), ConnectError> {
    // A pooler does not know the parameter, and nothing here is a float.
    let pooled = named(&settings.pooled.0).extra_float_digits(None);
    let direct = named(&settings.direct.0);
    let place = place(&direct);
    let mut connection = connect(&direct).await?;
    let state = durability(&mut connection).await.map_err(|error| other(&place, error))?;
    state.check(&place)?;
    match (settings.migrate, migrate::is_current(&mut connection, &place).await?) {
        (Migrate::AtStart, false) => {
            migrate::run(&mut connection, &place).await?;
        }
        (Migrate::ByCommand, false) => return Err(ConnectError::OlderSchema(place)),
        (_, true) => {}
    }
    // What went wrong in saying goodbye is the server's to care about.
    let _ = connection.close().await;
    let pooled_works = connect(&pooled).await?;
    let _ = pooled_works.close().await;
    Ok((pooled, direct))
}

/// Brings the schema up to date and answers what there was to do.
///
/// # Errors
/// Says what is wrong with the server and how to mend it.
pub async fn migrate(settings: &PostgresSettings) -> Result<MigrateOutcome, ConnectError> {
    let direct = named(&settings.direct.0);
    let place = place(&direct);
    let mut connection = connect(&direct).await?;
    if migrate::is_current(&mut connection, &place).await? {
        return Ok(MigrateOutcome::WasCurrent);
    }
    migrate::run(&mut connection, &place).await?;
    Ok(MigrateOutcome::Migrated)
}

pub(super) async fn connect(options: &PgConnectOptions) -> Result<PgConnection, ConnectError> {
    let place = place(options);
    match timeout(CONNECT_WITHIN, options.connect()).await {
        Ok(connected) => connected.map_err(|error| classify(place, error)),
        Err(_) => Err(ConnectError::Silent(place)),
    }
}

fn classify(place: String, error: sqlx::Error) -> ConnectError {
    let code = error.as_database_error().and_then(|error| error.code());
    match (&error, code.as_deref()) {
        (_, Some("28000" | "28P01" | "3D000" | "42501")) => ConnectError::Refused(place, error),
        (sqlx::Error::Io(_), _) => ConnectError::Unreachable(place, error),
        (sqlx::Error::Tls(_), _) => ConnectError::Tls(place, error),
        _ => other(&place, error),
    }
}

/// Of any question to the server itself, which may turn out to be a pooler.
pub(super) fn other(place: &str, error: sqlx::Error) -> ConnectError {
    let is_poolers = error.as_database_error().is_some_and(|error| match error.code().as_deref() {
        // Of settings of a session that it cannot keep.
        Some("08P01") => error.message().contains("startup parameter"),
        // A statement was prepared in another session than the one that answers.
        code => matches!(code, Some("42P05" | "26000")),
    });
    let place = place.to_owned();
    if is_poolers { ConnectError::Pooler(place, error) } else { ConnectError::Other(place, error) }
}

fn place(options: &PgConnectOptions) -> String {
    PostgresUrl(Box::new(options.clone())).to_string()
}

/// What people see in `pg_stat_activity`.
fn named(options: &PgConnectOptions) -> PgConnectOptions {
    match options.get_application_name() {
        Some(_) => options.clone(),
        None => options.clone().application_name("fencegate"),
    }
}

struct Durability {
    is_standby: bool,
    fsync: String,
    full_page_writes: String,
    synchronous_commit: String,
    synchronous_standbys: String,
}

async fn durability(connection: &mut PgConnection) -> Result<Durability, sqlx::Error> {
    let (is_standby, fsync, full_page_writes, synchronous_commit, synchronous_standbys) =
        sqlx::query_as(
            "SELECT pg_is_in_recovery(), current_setting('fsync'),
                 current_setting('full_page_writes'), current_setting('synchronous_commit'),
                 current_setting('synchronous_standby_names')",
        )
        .fetch_one(connection)
        .await?;
    Ok(Durability { is_standby, fsync, full_page_writes, synchronous_commit, synchronous_standbys })
}

impl Durability {
    fn check(&self, place: &str) -> Result<(), ConnectError> {
        let lost = |why: &str| Err(ConnectError::NotDurable(place.to_owned(), why.to_owned()));
        if self.is_standby {
            return Err(ConnectError::Standby(place.to_owned()));
        }
        if self.fsync != "on" {
            return lost("fsync is off; set fsync = on");
        }
        let has_standbys = !self.synchronous_standbys.trim().is_empty();
        match self.synchronous_commit.as_str() {
            "off" => {
                return lost("synchronous_commit is off; set it to on, at least for this user");
            }
            // Who names standbys means to promote one; it must have on disk what was confirmed.
            weaker @ ("local" | "remote_write") if has_standbys => {
                return lost(&format!(
                    "synchronous_commit is {weaker}, but synchronous_standby_names names standbys, \
                     which then lack commits; set it to on, at least for this user"
                ));
            }
            _ => {}
        }
        if self.full_page_writes != "on" {
            tracing::warn!(
                "full_page_writes is off: the database does not survive a torn page unless its \
                 file system rules them out"
            );
        }
        Ok(())
    }
}
