"""The operators' dashboard: is it safe, is it fast, is it full."""

import boundary
import capacity
import latency
import leases
import now
import outside
import safety
from page import annotation, common_variables, dashboard, rise
from panels import ORANGE, RED
from promql import instances, risen

DESCRIPTION = (
    "Fencegate for those who run it: is it safe, is it fast, is it full; its leases, its store and its coordinator. "
    "The same for one gateway and for thirty."
)


def build():
    """The whole dashboard."""
    rows = [
        ("Now", now.panels()),
        ("Is it safe?", safety.panels()),
        ("Is it fast?", latency.panels()),
        ("Is it full?", capacity.panels()),
        ("Leases", leases.panels()),
        ("Store and coordinator, as the gateways see them", outside.panels()),
        ("Instances", outside.instance_panels()),
        ("Certificates, access, configuration", boundary.panels()),
    ]
    return dashboard("fencegate-operators", "Fencegate / Operators", DESCRIPTION, common_variables(), annotations(), rows)


def annotations():
    """What happens rarely and explains much. Raises of single resources would be thousands: they are on the other
    dashboard."""
    changed = instances("fencegate_coordinator_changed")
    starts_over = risen(instances("fencegate_instance_starts_over_total"))
    fenced = risen(instances("fencegate_instances_fenced_total"))
    return [
        annotation("Epochs", "purple", rise(instances("fencegate_coordinator_epoch")),
                   "New epoch of {{job}}", "An operator adopted a new history of the coordinator."),
        annotation("Coordinator changed", RED, f"max by (job) (max_over_time({changed}[$__rate_interval])) == 1",
                   "Coordinator of {{job}} changed",
                   "The coordinator has another history than before: new tokens are refused until an operator adopts it."),
        annotation("Instances taken for dead", ORANGE, f"count by (job) {fenced}",
                   "An instance of {{job}} was taken for dead", "Another one fenced it, and its grants are void."),
        annotation("Instances started over", "yellow", f"count by (job) {starts_over}",
                   "An instance of {{job}} started over", "Its lease in the store was over; it cut all that was in flight."),
    ]
