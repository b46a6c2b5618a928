//! What can be done on the lease and admin listeners, and to what.

use crate::fence::{Owner, Resource};

macro_rules! verbs {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// One thing that a credential may be allowed to do.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Verb { $($(#[$doc])* $name,)* }

        impl Verb {
            /// Every verb, in the order of the documentation.
            pub const ALL: &'static [Verb] = &[$(Verb::$name,)*];

            /// The verb as it stands in the credentials file and in the audit log.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Verb::$name => $text,)* }
            }
        }
    };
}

verbs! {
    /// Acquire a lease.
    LeaseAcquire = "lease.acquire",
    /// Renew a lease.
    LeaseRenew = "lease.renew",
    /// Release a lease.
    LeaseRelease = "lease.release",
    /// Show a lease, and list them.
    LeaseRead = "lease.read",
    /// Show fences, writes in doubt and the coordinator's history.
    AdminRead = "admin.read",
    /// Scrape the metrics.
    AdminMetrics = "admin.metrics",
    /// Raise a mark by hand.
    AdminRaise = "admin.raise",
    /// Adopt another history of the coordinator.
    AdminAdopt = "admin.adopt",
}

impl Verb {
    /// Whether a credential that has it has to say for which resources.
    pub(super) const fn is_about_resources(self) -> bool {
        !matches!(self, Verb::AdminMetrics | Verb::AdminAdopt)
    }
}

/// What a verb is done to.
#[derive(Clone, Copy, Debug)]
pub enum Scope<'a> {
    /// Nothing that has a name.
    Gateway,
    /// Whatever resources there are.
    AllResources,
    /// One resource.
    Resource(&'a Resource),
    /// One resource's lease, as this owner.
    Lease(&'a Resource, &'a Owner),
}

impl<'a> Scope<'a> {
    pub(super) const fn resource(self) -> Option<&'a Resource> {
        match self {
            Scope::Resource(resource) | Scope::Lease(resource, _) => Some(resource),
            Scope::Gateway | Scope::AllResources => None,
        }
    }

    pub(super) const fn owner(self) -> Option<&'a Owner> {
        match self {
            Scope::Lease(_, owner) => Some(owner),
            Scope::Gateway | Scope::AllResources | Scope::Resource(_) => None,
        }
    }
}
