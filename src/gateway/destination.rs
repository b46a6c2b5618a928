//! The second resource of a request, where it has one.
//!
//! A COPY or MOVE changes what its Destination field names as well as its target, and carries one
//! token. So both must be the same resource; a route whose resource is the whole tree serves that.

use std::sync::Arc;

use http::{HeaderMap, Method, Uri};

use super::head::DESTINATION;
use super::refusal::Refusal;
use super::route::{Route, RouteTable};
use super::target;

/// Checks that a write to `resource` changes nothing that another fence protects.
///
/// # Errors
/// It may.
pub(super) fn check(
    headers: &HeaderMap,
    method: &Method,
    routes: &RouteTable,
    route: &Arc<Route>,
    resource: &str,
) -> Result<(), Refusal> {
    let mut fields = headers.get_all(DESTINATION).iter();
    let (Some(field), None) = (fields.next(), fields.next()) else {
        return Err(unresolvable("the Destination field is repeated"));
    };
    let uri = Uri::try_from(field.as_bytes())
        .map_err(|_| unresolvable("the Destination field is neither a URL nor a path"))?;
    let path = target::normal_path(uri.path())
        .map_err(|error| Refusal::Unresolvable(format!("in the Destination field, {error}")))?;
    let (other, name) = routes
        .find(&path)
        .ok_or_else(|| unresolvable("no route matches the path of the Destination field"))?;
    let is_unfenced = !route.fences(method) && !other.fences(method);
    if is_unfenced || (Arc::ptr_eq(route, other) && *name == *resource) {
        return Ok(());
    }
    Err(unresolvable("the Destination field names another resource, and one token fences one"))
}

fn unresolvable(detail: &str) -> Refusal {
    Refusal::Unresolvable(detail.to_owned())
}
