//! How many were refused.

use prometheus::{IntCounterVec, Opts, Registry};

use super::Listener;
use crate::problem::Code;

/// Why somebody was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// It is not known who it is.
    Unauthenticated,
    /// It may not do this, or not from there.
    Forbidden,
}

impl Reason {
    const ALL: [Reason; 2] = [Reason::Unauthenticated, Reason::Forbidden];

    pub(super) const fn code(self) -> Code {
        match self {
            Reason::Unauthenticated => Code::Unauthenticated,
            Reason::Forbidden => Code::Forbidden,
        }
    }

    pub(super) const fn as_str(self) -> &'static str {
        self.code().as_str()
    }
}

pub(super) struct Metrics {
    refusals: IntCounterVec,
}

impl Metrics {
    pub(super) fn register(registry: &Registry) -> prometheus::Result<Metrics> {
        let refusals = IntCounterVec::new(
            Opts::new(
                "fencegate_access_refusals_total",
                "Requests that the lease and admin listeners refused for want of a credential or \
                 of a right.",
            ),
            &["listener", "reason"],
        )?;
        registry.register(Box::new(refusals.clone()))?;
        for listener in Listener::ALL {
            for reason in Reason::ALL {
                refusals.with_label_values(&[listener.as_str(), reason.as_str()]);
            }
        }
        Ok(Metrics { refusals })
    }

    pub(super) fn refused(&self, listener: Listener, reason: Reason) {
        self.refusals.with_label_values(&[listener.as_str(), reason.as_str()]).inc();
    }
}
