//! What both APIs read of a request besides its path: a JSON body, a query, the size of a page.

use std::ops::RangeInclusive;

use axum::extract::Query;
use axum::extract::rejection::QueryRejection;
use http::Uri;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::fence::Resource;
use crate::problem::{Code, Problem};

const PAGE_ROWS: RangeInclusive<u64> = 1..=1000;

/// The query of a list that comes in pages.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PageQuery {
    /// The page begins behind this resource.
    pub(crate) after: Option<Resource>,
    #[serde(default = "default_limit")]
    limit: u64,
}

/// The query of a list that is cut off.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LimitQuery {
    #[serde(default = "default_limit")]
    limit: u64,
}

impl PageQuery {
    /// Rows at the most.
    pub(crate) fn limit(&self) -> Result<u32, Problem> {
        rows(self.limit)
    }
}

impl LimitQuery {
    /// Rows at the most.
    pub(crate) fn limit(&self) -> Result<u32, Problem> {
        rows(self.limit)
    }
}

fn rows(limit: u64) -> Result<u32, Problem> {
    Ok(u32::try_from(bounded("limit", limit, PAGE_ROWS)?).unwrap_or(u32::MAX))
}

const fn default_limit() -> u64 {
    100
}

/// Reads a body, whatever its `Content-Type`: `curl -d` sends another one than JSON's.
pub(crate) fn parse_json<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(body)
        .map_err(|error| Problem::new(Code::InvalidRequest, format!("the body: {error}")))
}

/// Reads the parameters of a query.
pub(crate) fn parse_query<T: DeserializeOwned>(uri: &Uri) -> Result<T, Problem> {
    let Query(query) = Query::try_from_uri(uri)
        .map_err(|error: QueryRejection| Problem::new(Code::InvalidRequest, error.body_text()))?;
    Ok(query)
}

/// `value`, if it is in `range`.
pub(crate) fn bounded(name: &str, value: u64, range: RangeInclusive<u64>) -> Result<u64, Problem> {
    if range.contains(&value) {
        return Ok(value);
    }
    let detail = format!("{name} is {value}; it must be {} to {}", range.start(), range.end());
    Err(Problem::new(Code::InvalidRequest, detail))
}
