//! Metrics of tenants, where the operator turns them on.

use crate::http::recorder::RequestRecorder;
use crate::http::tenant_meter::{TenantCounts, TenantMeter};
use crate::quota::QuotaLeft;
use crate::telemetry::exposition::{Exposition, Kind};

/// Appends them; families without samples while they are off.
pub(super) fn render(out: &mut Exposition, recorder: &RequestRecorder) {
    let tenants = recorder.tenants().map(TenantMeter::counts).unwrap_or_default();
    let help = "Requests of a tenant's MCP endpoints by how they ended, where metrics.tenants is set.";
    let mut family = out.family("waggle_tenant_requests_total", Kind::Counter, help);
    for TenantCounts { tenant, results, .. } in &tenants {
        for (result, count) in results {
            family.sample(&[("tenant", tenant), ("result", result)], *count);
        }
    }
    let help = "Bytes of the bodies of a tenant's requests and answers, where metrics.tenants is set.";
    let mut family = out.family("waggle_tenant_bytes_total", Kind::Counter, help);
    for TenantCounts { tenant, bytes, .. } in &tenants {
        family.sample(&[("tenant", tenant)], *bytes);
    }
    let help = "Duration of a tenant's requests, where metrics.tenants is set.";
    let mut family = out.family("waggle_tenant_request_duration_seconds", Kind::Histogram, help);
    for TenantCounts { tenant, durations, .. } in &tenants {
        family.durations(&[("tenant", tenant)], durations);
    }
    let help = "What is left of a tenant's quotas, as of the last time that this replica reserved a share, where \
        metrics.tenants is set.";
    let mut family = out.family("waggle_tenant_quota_remaining", Kind::Gauge, help);
    for QuotaLeft { tenant, period, unit, left } in recorder.usage().quotas_left() {
        let labels = [("tenant", &*tenant.to_string()), ("period", period.as_str()), ("unit", unit)];
        family.sample(&labels, left);
    }
}
