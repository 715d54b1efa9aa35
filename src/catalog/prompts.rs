//! Prompts: the checks when one is registered.

use super::Catalog;
use super::compiled::{Compiled, MessageError};
use super::definitions::{Registered, check_count};
use super::limits::CatalogLimits;
use super::render::RenderError;
use super::target::Target;
use crate::model::caller::Payer;
use crate::model::fault::Fault;
use crate::model::ids::TenantId;
use crate::model::prompt::{NewPrompt, Prompt};
use crate::store::write::Write;

impl Registered for Prompt {
    fn needs_check(_: &NewPrompt) -> bool {
        true
    }

    fn most(limits: &CatalogLimits) -> usize {
        limits.prompts_per_agent
    }

    /// Compiles the messages, and renders them together without values.
    async fn check(catalog: &Catalog, tenant: TenantId, new: &NewPrompt) -> Result<(), Fault> {
        let arguments = new.arguments.iter().enumerate();
        let completions =
            arguments.map(|(at, declared)| (format!("arguments[{at}].completions"), &declared.completions));
        catalog.check_completions(tenant, completions.collect()).await?;
        let json = new.messages.bytes.clone();
        let arguments: Vec<_> = new.arguments.iter().map(|argument| argument.name.clone()).collect();
        let compile = move || {
            let messages =
                serde_json::from_slice(&json).map_err(|error| RenderError::Failed(error.to_string()))?;
            Ok(Compiled::prompt(messages, &arguments, json.len()))
        };
        let payer = Payer::Tenant(tenant);
        let compiled =
            catalog.renderer.run(payer, compile).await?.map_err(|MessageError { index, error }| {
                Fault::from(error).within(format_args!("messages[{index}]"))
            })?;
        let rendered = compiled.texts((&catalog.renderer, payer), &[]).await;
        rendered.map_err(|fault| fault.within("messages")).map(drop)
    }

    fn is_checked_as(&self, new: &NewPrompt) -> bool {
        let declared = self.arguments.iter().map(|argument| &argument.name);
        let is_listed = new.arguments.iter().all(|argument| argument.completions.source().is_none());
        is_listed
            && self.messages == new.messages.hash
            && declared.eq(new.arguments.iter().map(|argument| &argument.name))
    }

    async fn add(catalog: &Catalog, write: &mut Write, target: &Target, _: &NewPrompt) -> Result<(), Fault> {
        let others = write.count_prompts(target.agent).await?;
        let count = usize::try_from(others).unwrap_or(usize::MAX).saturating_add(1);
        check_count::<Self>(count, &catalog.limits)
    }
}
