//! The coordinator's history: looking at it, and adopting another one.

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use super::Admin;
use crate::access::{Caller, Scope, Verb};
use crate::coordinator::{Adopted, CoordinatorError};
use crate::fence::Epoch;
use crate::problem::{Code, Problem, ProblemOutcome};

pub(super) async fn show(
    State(admin): State<Admin>,
    caller: Caller,
) -> Result<Json<Value>, Problem> {
    caller.demand(Verb::AdminRead, Scope::Gateway)?;
    let Some(guard) = &admin.guard else {
        return Ok(Json(json!({ "epoch": Epoch::FIRST, "changed": null })));
    };
    let view = guard.view().await.map_err(|error| unavailable(&error))?;
    Ok(Json(json!(view)))
}

pub(super) async fn adopt(
    State(admin): State<Admin>,
    caller: Caller,
) -> Result<Json<Value>, Problem> {
    let action = caller.begin(Verb::AdminAdopt, Scope::Gateway)?;
    action.ended(adopted(&admin).await)
}

async fn adopted(admin: &Admin) -> Result<Json<Value>, Problem> {
    let Some(guard) = &admin.guard else { return Err(unchanged(Epoch::FIRST)) };
    let adopted = guard.adopt().await.map_err(|error| {
        let mut problem = unavailable(&error);
        problem.outcome = ProblemOutcome::Unknown;
        problem
    })?;
    match adopted {
        Adopted::Epoch(epoch) => Ok(Json(json!({ "epoch": epoch }))),
        Adopted::Unchanged(epoch) => Err(unchanged(epoch)),
    }
}

fn unchanged(epoch: Epoch) -> Problem {
    let detail = format!(
        "the coordinator goes on with the history that is known, epoch {epoch}: there is nothing to adopt"
    );
    Problem::new(Code::CoordinatorUnchanged, detail)
}

fn unavailable(error: &CoordinatorError) -> Problem {
    let code = match error {
        CoordinatorError::Unavailable(_) => Code::CoordinatorUnavailable,
        CoordinatorError::Changed(_) => Code::CoordinatorChanged,
    };
    Problem::new(code, error.to_string())
}
