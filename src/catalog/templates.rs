//! Resource templates: the checks when one is registered.

use uri_template::{ConflictChecker, UriTemplate};

use super::Catalog;
use super::compiled::Compiled;
use super::definitions::{Registered, check_count};
use super::limits::CatalogLimits;
use super::rendered::text;
use super::target::Target;
use crate::model::caller::Payer;
use crate::model::fault::Fault;
use crate::model::ids::TenantId;
use crate::model::template::{NewTemplate, ResourceTemplate};
use crate::store::write::Write;

impl Registered for ResourceTemplate {
    fn most(limits: &CatalogLimits) -> usize {
        limits.templates_per_agent
    }

    fn needs_check(_: &NewTemplate) -> bool {
        true
    }

    /// Compiles the body and renders it without values, which refuses a body whose cost is too high with any values.
    async fn check(catalog: &Catalog, tenant: TenantId, new: &NewTemplate) -> Result<(), Fault> {
        let completions = new.completions.iter();
        let completions = completions.map(|(name, values)| (format!("completions.{name}"), values));
        catalog.check_completions(tenant, completions.collect()).await?;
        if let Some(source) = &new.source {
            return catalog.check_source(tenant, source).await;
        }
        let body = new.body.bytes.clone();
        let variables: Vec<_> = new.uri_template.variables().map(str::to_owned).collect();
        let refused = |fault: Fault| fault.within("template");
        let payer = Payer::Tenant(tenant);
        let compiled = catalog.renderer.run(payer, move || Compiled::body(text(&body)?, &variables)).await;
        let compiled = compiled.map_err(|error| refused(error.into()))?;
        compiled.texts((&catalog.renderer, payer), &[]).await.map_err(refused).map(drop)
    }

    fn is_checked_as(&self, new: &NewTemplate) -> bool {
        let is_listed = new.completions.values().all(|values| values.source().is_none());
        self.body == new.body.hash && new.source.is_none() && is_listed
    }

    async fn find_conflict(
        catalog: &Catalog,
        tenant: TenantId,
        known: Vec<UriTemplate>,
        new: Vec<UriTemplate>,
    ) -> Result<Option<(usize, Fault)>, Fault> {
        let compare = move || {
            let mut checker = ConflictChecker::default();
            for template in &known {
                checker.insert_unchecked(template);
            }
            let mut conflicts = new.iter().map(|template| checker.insert(template).err()).enumerate();
            Ok(conflicts.find_map(|(index, conflict)| Some((index, conflict?))))
        };
        let found = catalog.renderer.run(Payer::Tenant(tenant), compare).await?;
        let fault = |conflict| Fault::invalid_params(format!("uriTemplate {conflict}"));
        Ok(found.map(|(index, conflict)| (index, fault(conflict))))
    }

    async fn add(
        catalog: &Catalog,
        write: &mut Write,
        target: &Target,
        new: &NewTemplate,
    ) -> Result<(), Fault> {
        let others = write.uri_templates(target.agent).await?;
        check_count::<Self>(others.len() + 1, &catalog.limits)?;
        let new = vec![new.uri_template.clone()];
        let conflict = Self::find_conflict(catalog, target.agent.tenant, others, new).await?;
        conflict.map_or(Ok(()), |(_, fault)| Err(fault))
    }
}
