//! The schema, and whether the database keeps what it confirms.
//!
//! Applied by hand instead of by sqlx's migrator, which locks for a session and prepares named
//! statements: neither works through a pooler that gives every transaction another session.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Deserialize;
use sqlx::migrate::{Migration, Migrator};

use super::database::{Database, text};
use crate::coordinator::CoordinatorError;

static MIGRATIONS: Migrator = sqlx::migrate!("migrations/postgres_leases");

/// Any number, so long as it is always the same.
const LOCK: i64 = 7_166_185_062;

/// Why PostgreSQL cannot be the coordinator.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PostgresStartError {
    /// It did not answer, or refused.
    #[error(transparent)]
    Unavailable(#[from] CoordinatorError),
    /// It may forget what it confirmed, or cannot hold the names of resources.
    #[error("coordinator.url: this database cannot keep leases: {0}")]
    Unfit(&'static str),
    /// A newer Fencegate was here.
    #[error(
        "coordinator.url: a newer Fencegate has changed the schema (migration {0} is not known to \
         this version); start that version or a later one"
    )]
    NewerSchema(i64),
    /// A migration that was applied is not the one of this version.
    #[error(
        "coordinator.url: migration {0} of the leases was not made by a release of Fencegate; use \
         another database"
    )]
    ForeignSchema(i64),
}

#[derive(Deserialize)]
struct Server {
    fsync: bool,
    synchronous_commit: String,
    is_replica: bool,
    encoding: String,
}

/// Brings the schema up to date, unless the server is one that forgets.
pub(super) async fn prepare(database: &Database) -> Result<(), PostgresStartError> {
    let server: Server = database
        .ask(
            "jsonb_build_object('fsync', current_setting('fsync')::boolean, \
             'synchronous_commit', current_setting('synchronous_commit'), \
             'is_replica', pg_is_in_recovery(), 'encoding', current_setting('server_encoding'))",
        )
        .await?;
    server.check()?;
    // Looked at first, since a role that may only use the tables may not be allowed to create any.
    let missing = missing(&applied(database).await?)?;
    if !missing.is_empty() {
        migrate(database, &missing).await?;
    }
    Ok(())
}

impl Server {
    fn check(&self) -> Result<(), PostgresStartError> {
        Err(PostgresStartError::Unfit(match self {
            Server { fsync: false, .. } => "fsync is off; set fsync = on",
            Server { is_replica: true, .. } => "it is a standby; name the primary",
            Server { synchronous_commit, .. } if synchronous_commit == "off" => {
                "synchronous_commit is off; set it to on for this role or database"
            }
            Server { encoding, .. } if encoding != "UTF8" => {
                "its encoding is not UTF8; create one WITH ENCODING 'UTF8'"
            }
            _ => return Ok(()),
        }))
    }
}

async fn applied(database: &Database) -> Result<BTreeMap<i64, String>, CoordinatorError> {
    let exists: bool =
        database.ask("to_jsonb(to_regclass('fencegate_leases_migrations') IS NOT NULL)").await?;
    if !exists {
        return Ok(BTreeMap::new());
    }
    database
        .ask(
            "SELECT coalesce(jsonb_object_agg(version, checksum), '{}') \
             FROM fencegate_leases_migrations",
        )
        .await
}

fn missing(applied: &BTreeMap<i64, String>) -> Result<Vec<&'static Migration>, PostgresStartError> {
    for (version, checksum) in applied {
        let ours = MIGRATIONS.iter().find(|migration| migration.version == *version);
        match ours {
            None => return Err(PostgresStartError::NewerSchema(*version)),
            Some(ours) if hex(&ours.checksum) != *checksum => {
                return Err(PostgresStartError::ForeignSchema(*version));
            }
            Some(_) => {}
        }
    }
    Ok(MIGRATIONS.iter().filter(|ours| !applied.contains_key(&ours.version)).collect())
}

/// In one transaction, which is what one message is; another gateway that starts at the same time waits, and then finds it done.
async fn migrate(
    database: &Database,
    migrations: &[&'static Migration],
) -> Result<(), PostgresStartError> {
    let mut script = format!(
        "SELECT pg_advisory_xact_lock({LOCK})::text; \
         CREATE TABLE IF NOT EXISTS fencegate_leases_migrations \
         (version bigint PRIMARY KEY, checksum text NOT NULL);"
    );
    for Migration { version, sql, checksum, .. } in migrations {
        let checksum = text(&hex(checksum));
        // First, so that a migration that another gateway made meanwhile ends the script here.
        let _ = write!(
            script,
            "INSERT INTO fencegate_leases_migrations VALUES ({version}, {checksum}); {};",
            sql.as_str()
        );
    }
    if let Err(error) = database.first_column(script).await {
        // Another gateway was faster, or it failed for good.
        if missing(&applied(database).await?)?.is_empty() {
            return Ok(());
        }
        return Err(error.into());
    }
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
