//! No coordinator: for gateways whose routes all take tokens from elsewhere.

use std::time::Duration;

use async_trait::async_trait;

use super::{Acquired, Coordinator, CoordinatorError, Holding, Lease, Released};
use crate::fence::{Epoch, Owner, Resource, Token};

/// Hands out nothing and confirms nothing.
#[derive(Debug)]
pub struct Absent;

fn absent<T>() -> Result<T, CoordinatorError> {
    Err(CoordinatorError::Unavailable("this gateway has none".into()))
}

#[async_trait]
impl Coordinator for Absent {
    async fn acquire(
        &self,
        _: Resource,
        _: Owner,
        _: Duration,
        _: Duration,
    ) -> Result<Acquired, CoordinatorError> {
        absent()
    }

    async fn renew(
        &self,
        _: Resource,
        _: Owner,
        _: Token,
        _: Option<Duration>,
    ) -> Result<Option<Lease>, CoordinatorError> {
        absent()
    }

    async fn release(&self, _: Resource, _: Owner, _: Token) -> Result<Released, CoordinatorError> {
        absent()
    }

    async fn holder(&self, _: Resource) -> Result<Holding, CoordinatorError> {
        absent()
    }

    fn epoch(&self) -> Epoch {
        Epoch::FIRST
    }

    async fn list(&self, _: Option<Resource>, _: u32) -> Result<Vec<Lease>, CoordinatorError> {
        absent()
    }
}
