//! Store files with a past.

use std::path::PathBuf;

use anyhow::{Context, Result};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode};
use sqlx::{Connection, SqliteConnection};

use crate::gateway::{self, Backing, Gateway};
use crate::lab::Lab;

/// Fences in a full store.
pub(crate) const FENCES: u32 = 1_000_000;

/// The resource that a full store knows under this number, without its prefix.
pub(crate) fn full_store_id(number: u32) -> String {
    format!("{number:07}")
}

const FILL: &str = "
    WITH RECURSIVE numbers (n) AS
        (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < ?1)
    INSERT INTO fences (resource, token, confirmed, owner, updated_at)
        SELECT ?2 || printf('%07d', n), 1, 1, NULL, 0 FROM numbers";

/// A store that a gateway made and left without a fence.
pub(crate) fn empty(lab: &Lab<'_>) -> Result<PathBuf> {
    let path = gateway::store_file(lab, "empty");
    if !path.exists() {
        drop(Gateway::start(lab, &Backing::file(&path))?);
    }
    Ok(path)
}

/// A store with [`FENCES`] fences, each with token 1.
pub(crate) fn full(lab: &Lab<'_>) -> Result<PathBuf> {
    let path = gateway::store_file(lab, "full");
    if !path.exists() {
        eprintln!("filling a store with {FENCES} fences");
        drop(Gateway::start(lab, &Backing::file(&path))?);
        lab.block_on(fill(&path)).context("filling a store")?;
    }
    Ok(path)
}

async fn fill(path: &std::path::Path) -> Result<()> {
    let options = SqliteConnectOptions::new().filename(path).journal_mode(SqliteJournalMode::Wal);
    let mut connection = SqliteConnection::connect_with(&options).await?;
    sqlx::query(FILL)
        .bind(FENCES)
        .bind(gateway::ORDERED_RESOURCE_PREFIX)
        .execute(&mut connection)
        .await?;
    Ok(connection.close().await?)
}
