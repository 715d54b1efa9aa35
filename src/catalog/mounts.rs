//! Mounts: the checks when one is registered, and the scans that find their files.

mod extent;
mod scan;
mod scanner;

use std::collections::BTreeSet;

use content_source::Kind;

pub use self::scanner::MountScanner;

use super::Catalog;
use super::definitions::{Registered, check_count};
use super::limits::CatalogLimits;
use super::target::Target;
use crate::model::fault::Fault;
use crate::model::ids::TenantId;
use crate::model::mount::{Mount, NewMount};
use crate::store::write::Write;

const SAME_URI: Fault = Fault::AlreadyExists("a mount with this uri");

impl Registered for Mount {
    fn most(limits: &CatalogLimits) -> usize {
        limits.mounts_per_agent
    }

    fn needs_check(_: &NewMount) -> bool {
        true
    }

    /// Checks that the tenant may use the connection, and that it has trees.
    async fn check(catalog: &Catalog, tenant: TenantId, new: &NewMount) -> Result<(), Fault> {
        let id = &new.place.connection;
        let known = catalog.fetcher.connections().named(tenant, std::slice::from_ref(id)).await;
        let known = known.map_err(|fault| match fault {
            Fault::InvalidParams(_) => Fault::unknown_connection("connection", id),
            other => other,
        })?;
        let kind = known.get(id.as_str()).ok_or_else(|| Fault::unknown_connection("connection", id))?.kind;
        if !matches!(kind, Kind::File | Kind::Git | Kind::S3) {
            return Err(Fault::invalid_params(format!(
                "connection: one of kind {} has no files to mount; expected file, git or s3",
                kind.as_str()
            )));
        }
        if new.place.reference.is_some() && kind != Kind::Git {
            return Err(Fault::invalid_params(format!(
                "ref is no member of a connection of kind {}",
                kind.as_str()
            )));
        }
        Ok(())
    }

    fn is_checked_as(&self, new: &NewMount) -> bool {
        self.place == new.place
    }

    async fn add(catalog: &Catalog, write: &mut Write, target: &Target, _: &NewMount) -> Result<(), Fault> {
        let others = write.count_mounts(target.agent).await?;
        let count = usize::try_from(others).unwrap_or(usize::MAX).saturating_add(1);
        check_count::<Self>(count, &catalog.limits)
    }

    async fn check_placed(write: &mut Write, target: &Target, new: &NewMount) -> Result<(), Fault> {
        let is_taken = write.has_mount_at(target.agent, new.uri.as_str(), new.name.as_str()).await?;
        if is_taken { Err(SAME_URI) } else { Ok(()) }
    }
}

/// Checks that mounts, which are all of an agent, have different URIs.
pub(super) fn check_uris(mounts: &[NewMount]) -> Result<(), Fault> {
    let mut seen = BTreeSet::new();
    if mounts.iter().all(|mount| seen.insert(mount.uri.as_str())) { Ok(()) } else { Err(SAME_URI) }
}
