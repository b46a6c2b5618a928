//! Opening the file: every way in which it can be wrong has its own answer.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::migrate::{MigrateError, Migrator};
use sqlx::sqlite::{SqliteConnectOptions, SqliteError, SqliteLockingMode, SqliteSynchronous};
use sqlx::{Connection, SqliteConnection};

use crate::clock::Clock;

/// In the header of every store file, so that no other application's file is taken for one: "Fnce".
const APPLICATION_ID: i64 = 0x466e_6365;

static MIGRATIONS: Migrator = sqlx::migrate!("migrations/sqlite");

/// Long enough for a predecessor that was just told to stop, short enough for a person to wait.
const LOCK_WAIT: Duration = Duration::from_secs(2);

/// Why a store file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process holds the lock.
    #[error(
        "{0} is in use by another process, probably another Fencegate; stop that one, or give this \
         one a store of its own with --store sqlite:PATH"
    )]
    Locked(PathBuf),
    /// The file or its directory cannot be written.
    #[error("{0} cannot be written; give this user write access to the file and its directory")]
    ReadOnly(PathBuf),
    /// The file cannot be opened or created.
    #[error("{0} cannot be opened or created; give this user access to the file and its directory")]
    CannotOpen(PathBuf),
    /// The directory of the file is not there.
    #[error("{0} cannot be created: its directory does not exist; create it, or name another file")]
    NoDirectory(PathBuf),
    /// A directory has that name.
    #[error("{0} is a directory; name a file, such as fencegate.db in it")]
    IsDirectory(PathBuf),
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
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(LOCK_WAIT);
    let mut connection = SqliteConnection::connect_with(&options).await.map_err(classify)?;
    if !is_ours_or_empty(&mut connection).await.map_err(classify)? {
        return Err(OpenError::NotADatabase(path.into()));
    }
    mark_as_ours(&mut connection).await.map_err(classify)?;
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

/// Only reads: another application's file stays as it is.
async fn is_ours_or_empty(connection: &mut SqliteConnection) -> Result<bool, sqlx::Error> {
    let (application, is_empty) = sqlx::query_as::<_, (i64, bool)>(
        "SELECT application_id, NOT EXISTS (SELECT 1 FROM sqlite_schema)
         FROM pragma_application_id",
    )
    .fetch_one(connection)
    .await?;
    Ok(application == APPLICATION_ID || (application == 0 && is_empty))
}

/// Comes before the first table: a crash in between must not leave a file that is refused.
async fn mark_as_ours(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    sqlx::query("PRAGMA journal_mode = WAL").fetch_one(&mut *connection).await?;
    let mark = format!("PRAGMA application_id = {APPLICATION_ID}");
    sqlx::query(sqlx::AssertSqlSafe(mark)).execute(connection).await?;
    Ok(())
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
        // SQLite opens such a file for reading, and then cannot lock it.
        Some(10) if is_read_only(&path) => OpenError::ReadOnly(path),
        Some(13) => OpenError::Full(path),
        Some(14) if path.is_dir() => OpenError::IsDirectory(path),
        Some(14) if has_no_directory(&path) => OpenError::NoDirectory(path),
        Some(14) => OpenError::CannotOpen(path),
        Some(26) => OpenError::NotADatabase(path),
        _ => OpenError::Other(path, error),
    }
}

fn has_no_directory(path: &Path) -> bool {
    // The parent of a bare file name is the empty path: the working directory.
    path.parent().is_some_and(|parent| !parent.as_os_str().is_empty() && !parent.exists())
}

fn is_read_only(path: &Path) -> bool {
    path.exists() && rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_err()
}
