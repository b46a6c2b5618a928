//! The audit log: one line for each change and for each refusal to somebody who is known.
//!
//! Invariant: a change that began has a line, also if nobody waited for its end. A line says who,
//! what, to what and with which result; never the credential.

use std::fmt::Display;

use super::{Caller, Scope, Verb};
use crate::fence::{Owner, Resource, Token};
use crate::problem::{Problem, ProblemOutcome};

/// The target of all lines, to filter by.
pub(super) const TARGET: &str = "fencegate::audit";

/// A change that was allowed and began.
#[must_use = "its end is to be told"]
pub struct Action {
    caller: Caller,
    verb: Verb,
    resource: Option<Resource>,
    owner: Option<Owner>,
    token: Option<Token>,
    is_told: bool,
}

impl Action {
    pub(super) fn new(caller: Caller, verb: Verb, scope: Scope<'_>) -> Action {
        let (resource, owner) = (scope.resource().cloned(), scope.owner().cloned());
        Action { caller, verb, resource, owner, token: None, is_told: false }
    }

    /// Which token it is about.
    pub fn with_token(mut self, token: Token) -> Action {
        self.token = Some(token);
        self
    }

    /// Tells how it ended; a refusal gets the id by which the line is found.
    ///
    /// # Errors
    /// What it was told.
    pub fn ended<T>(mut self, result: Result<T, Problem>) -> Result<T, Problem> {
        result.inspect(|_| self.tell("done")).map_err(|mut problem| {
            self.tell(match problem.outcome {
                ProblemOutcome::NotForwarded => problem.code().as_str(),
                ProblemOutcome::Unknown => "unknown",
            });
            problem.trace_id = Some(self.caller.trace_id.to_string());
            problem
        })
    }

    fn tell(&mut self, result: &str) {
        self.is_told = true;
        let (caller, verb) = (&self.caller, self.verb.as_str());
        let line = Line {
            who: caller.name(),
            listener: caller.listener.as_str(),
            resource: self.resource.as_ref(),
            owner: self.owner.as_ref(),
            token: self.token,
            trace_id: &caller.trace_id,
        };
        // Every holder renews every few seconds, which would be most of the log.
        if self.verb == Verb::LeaseRenew && result == "done" {
            line.routine(verb, result);
        } else {
            line.write(verb, result);
        }
    }
}

impl Drop for Action {
    fn drop(&mut self) {
        if !self.is_told {
            self.tell("abandoned");
        }
    }
}

/// A line about somebody who is known and may not.
pub(super) fn refused(caller: &Caller, verb: Verb, scope: Scope<'_>, why: &str) {
    tracing::warn!(
        target: TARGET,
        who = caller.name(),
        what = verb.as_str(),
        listener = caller.listener.as_str(),
        resource = scope.resource().map(display),
        owner = scope.owner().map(display),
        result = "forbidden",
        detail = why,
        trace_id = %caller.trace_id,
        "audit"
    );
}

struct Line<'a> {
    who: &'a str,
    listener: &'a str,
    resource: Option<&'a Resource>,
    owner: Option<&'a Owner>,
    token: Option<Token>,
    trace_id: &'a dyn Display,
}

macro_rules! write_line {
    ($level:ident, $line:expr, $what:expr, $result:expr) => {
        tracing::$level!(
            target: TARGET,
            who = $line.who,
            what = $what,
            listener = $line.listener,
            resource = $line.resource.map(display),
            owner = $line.owner.map(display),
            // As text: a reader of JSON may round large numbers.
            token = $line.token.map(display),
            result = $result,
            trace_id = %$line.trace_id,
            "audit"
        )
    };
}

impl Line<'_> {
    fn write(&self, what: &str, result: &str) {
        write_line!(info, self, what, result);
    }

    fn routine(&self, what: &str, result: &str) {
        write_line!(debug, self, what, result);
    }
}
