//! Of the store: how long what is asked of it takes, and how often it does not confirm.

use std::time::Duration;

use prometheus::{Histogram, IntCounter, IntCounterVec, Opts, Registry};

use super::histograms;

/// What is asked of the store, as its metric calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Reading a fence before the first decision on it.
    Load,
    /// Raising a mark or recording a grant.
    Raise,
    /// Deleting grants that are over.
    GiveBack,
    /// Acquiring, renewing, releasing or sweeping leases.
    Lease,
    /// Looking up who holds a lease.
    Holder,
    /// Lists and rows for people.
    List,
    /// What is known of the coordinator's history.
    History,
    /// Asking whether other instances have older grants.
    Elsewhere,
    /// Asking what other instances want of this one.
    Look,
    /// Taking, renewing and ending this instance's lease, and ending others'.
    Instance,
}

/// Of the store.
#[derive(Clone, Debug)]
pub struct StoreMetrics {
    durations: [Histogram; Operation::ALL.len()],
    errors: [IntCounter; Operation::ALL.len()],
}

impl Operation {
    const ALL: [Operation; 10] = [
        Operation::Load,
        Operation::Raise,
        Operation::GiveBack,
        Operation::Lease,
        Operation::Holder,
        Operation::List,
        Operation::History,
        Operation::Elsewhere,
        Operation::Look,
        Operation::Instance,
    ];

    const fn label(self) -> &'static str {
        match self {
            Operation::Load => "load",
            Operation::Raise => "raise",
            Operation::GiveBack => "give_back",
            Operation::Lease => "lease",
            Operation::Holder => "holder",
            Operation::List => "list",
            Operation::History => "history",
            Operation::Elsewhere => "elsewhere",
            Operation::Look => "look",
            Operation::Instance => "instance",
        }
    }
}

impl StoreMetrics {
    /// Registers them.
    ///
    /// # Errors
    /// A name is registered already.
    pub fn register(registry: &Registry) -> prometheus::Result<StoreMetrics> {
        let durations = histograms(
            registry,
            "fencegate_store_duration_seconds",
            "Time from asking the store until its transaction was confirmed or had failed, by \
             operation.",
            "operation",
        )?;
        let errors = IntCounterVec::new(
            Opts::new(
                "fencegate_store_errors_total",
                "Operations that the store did not confirm, by operation.",
            ),
            &["operation"],
        )?;
        registry.register(Box::new(errors.clone()))?;
        Ok(StoreMetrics {
            durations: Operation::ALL
                .map(|operation| durations.with_label_values(&[operation.label()])),
            errors: Operation::ALL.map(|operation| errors.with_label_values(&[operation.label()])),
        })
    }

    pub(crate) fn done(&self, operation: Operation, took: Duration, is_confirmed: bool) {
        self.durations[operation as usize].observe(took.as_secs_f64());
        if !is_confirmed {
            self.errors[operation as usize].inc();
        }
    }
}
