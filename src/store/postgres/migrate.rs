//! The schema, shipped in the binary. Migrations are only ever added.

use sqlx::PgConnection;
use sqlx::migrate::{MigrateError, Migrator};

use super::connect::{ConnectError, other};

pub(super) static MIGRATIONS: Migrator = sqlx::migrate!("migrations/postgres");

/// What a migration found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MigrateOutcome {
    /// Nothing to do.
    WasCurrent,
    /// The schema was brought up to date.
    Migrated,
}

/// Whether the schema is this version's. Only reads.
pub(super) async fn is_current(
    connection: &mut PgConnection,
    place: &str,
) -> Result<bool, ConnectError> {
    let (is_there,): (bool,) = sqlx::query_as("SELECT to_regclass('_sqlx_migrations') IS NOT NULL")
        .fetch_one(&mut *connection)
        .await
        .map_err(|error| other(place, error))?;
    if !is_there {
        return Ok(false);
    }
    let applied: Vec<(i64,)> = sqlx::query_as("SELECT version FROM _sqlx_migrations ORDER BY 1")
        .fetch_all(connection)
        .await
        .map_err(|error| other(place, error))?;
    if let Some((newer,)) = applied.iter().find(|(version,)| !MIGRATIONS.version_exists(*version)) {
        return Err(ConnectError::NewerSchema(place.to_owned(), *newer));
    }
    Ok(applied.len() == MIGRATIONS.iter().count())
}

/// Applies what is missing, under a lock: of instances that start together one does it.
pub(super) async fn run(connection: &mut PgConnection, place: &str) -> Result<(), ConnectError> {
    MIGRATIONS.run(connection).await.map_err(|error| match error {
        MigrateError::VersionMissing(version) => {
            ConnectError::NewerSchema(place.to_owned(), version)
        }
        error => ConnectError::Migrate(place.to_owned(), error),
    })
}
