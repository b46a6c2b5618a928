//! Opening the file: every way in which it can be wrong has its own answer.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::migrate::{MigrateError, Migrator};
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteError, SqliteJournalMode, SqliteLockingMode, SqliteSynchronous,
};
use sqlx::{Connection, SqliteConnection};

use crate::clock::Clock;

static MIGRATIONS: Migrator = sqlx::migrate!("migrations/sqlite");

/// Long enough for a predecessor that was just told to stop, short enough for a person to wait.
const LOCK_WAIT: Duration = Duration::from_secs(2);

/// Why a store file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process holds the lock.
    #[error(
        "{0} is in use by another Fencegate; stop that one, or give this one a store of its own \
         with --store sqlite:PATH"
    )]
    Locked(PathBuf),
    /// The file or its directory cannot be written.
    #[error("{0} cannot be written; give this user write access to the file and its directory")]
    ReadOnly(PathBuf),
    /// The file cannot be opened or created.
    #[error("{0} cannot be opened or created; check that its directory exists and is accessible")]
    CannotOpen(PathBuf),
    /// The file holds something else.
    #[error("{0} is not a Fencegate store; name another file, or move this one away")]
    NotADatabase(PathBuf),
    /// No space is left.
    #[error("the disk that holds {0} is full; make room and start again")]
    Full(PathBuf),
    /// A newer Fencegate wrote the file.
    #[error(
        "{0} was written by a newer Fencegate (its schema has migration {1}, which this version \
         does not know); start that version or a later one"
    )]
    NewerSchema(PathBuf, i64),
    /// The file does not confirm that commits are durable.
    #[error("{0} is not durable: {1}; put it on a local file system")]
    NotDurable(PathBuf, String),
    /// Anything else.
    #[error("{0} cannot be used as a store")]
    Other(PathBuf, #[source] sqlx::Error),
    /// The schema could not be brought up to date.
    #[error("the schema of {0} cannot be migrated")]
    Migrate(PathBuf, #[source] MigrateError),
}

pub(super) async fn open(path: &Path, clock: Clock) -> Result<(SqliteConnection, i64), OpenError> {
    let classify = |error| classify(path, error);
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .locking_mode(SqliteLockingMode::Exclusive)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(LOCK_WAIT);
    let mut connection = SqliteConnection::connect_with(&options).await.map_err(classify)?;
    MIGRATIONS.run(&mut connection).await.map_err(|error| match error {
        MigrateError::VersionMissing(version) => OpenError::NewerSchema(path.into(), version),
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => classify(error),
        error => OpenError::Migrate(path.into(), error),
    })?;
    check_durable(path, &mut connection).await?;
    // A write of our own proves that the file can be written and that its lock is ours.
    let (instance,) =
        sqlx::query_as::<_, (i64,)>("INSERT INTO instances (started_at) VALUES (?1) RETURNING id")
            .bind(clock.wall().as_millis())
            .fetch_one(&mut connection)
            .await
            .map_err(classify)?;
    Ok((connection, instance))
}

async fn check_durable(path: &Path, connection: &mut SqliteConnection) -> Result<(), OpenError> {
    let (journal,) = sqlx::query_as::<_, (String,)>("PRAGMA journal_mode")
        .fetch_one(&mut *connection)
        .await
        .map_err(|error| classify(path, error))?;
    let (synchronous,) = sqlx::query_as::<_, (i64,)>("PRAGMA synchronous")
        .fetch_one(connection)
        .await
        .map_err(|error| classify(path, error))?;
    if journal != "wal" || synchronous < 2 {
        let found = format!("journal_mode={journal} synchronous={synchronous}, not wal and 2");
        return Err(OpenError::NotDurable(path.into(), found));
    }
    Ok(())
}

/// Result codes of <https://www.sqlite.org/rescode.html>.
fn classify(path: &Path, error: sqlx::Error) -> OpenError {
    let path = PathBuf::from(path);
    let code = error
        .as_database_error()
        .and_then(|error| error.try_downcast_ref::<SqliteError>())
        .and_then(|error| sqlx::error::DatabaseError::code(error)?.parse::<u32>().ok());
    match code.map(|code| code & 0xff) {
        Some(5 | 6) => OpenError::Locked(path),
        Some(3 | 8) => OpenError::ReadOnly(path),
        Some(13) => OpenError::Full(path),
        Some(14) => OpenError::CannotOpen(path),
        Some(26) => OpenError::NotADatabase(path),
        _ => OpenError::Other(path, error),
    }
}
