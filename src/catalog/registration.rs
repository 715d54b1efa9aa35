//! What is checked of templates and prompts before they are registered: that they compile, that they render, and that
//! no two templates conflict.

use std::sync::Arc;

use uri_template::{Conflict, ConflictChecker, UriTemplate};

use super::Catalog;
use super::compiled::{Compiled, MessageError};
use super::render::RenderError;
use super::rendered::text;
use crate::model::caller::Payer;
use crate::model::fault::Fault;
use crate::model::ids::TenantId;
use crate::model::prompt::NewPrompt;
use crate::model::template::NewTemplate;

impl Catalog {
    /// Compiles the body of a template, and renders it without values: what takes too much even then is refused.
    pub(super) async fn check_body(&self, tenant: TenantId, new: &NewTemplate) -> Result<(), Fault> {
        let body = new.body.bytes.clone();
        let variables: Vec<_> = new.uri_template.variables().map(str::to_owned).collect();
        let refused = |fault: Fault| fault.within("template");
        let payer = Payer::Tenant(tenant);
        let compiled = self.renderer.run(payer, move || Compiled::body(text(&body)?, &variables)).await;
        let compiled = compiled.map_err(|error| refused(error.into()))?;
        compiled.texts((&self.renderer, payer), &[]).await.map_err(refused).map(drop)
    }

    /// Compiles the messages of a prompt, and renders them together without values.
    pub(super) async fn check_messages(&self, tenant: TenantId, new: &NewPrompt) -> Result<(), Fault> {
        let json = new.messages.bytes.clone();
        let arguments: Vec<_> = new.arguments.iter().map(|argument| argument.name.clone()).collect();
        let compile = move || {
            let messages =
                serde_json::from_slice(&json).map_err(|error| RenderError::Failed(error.to_string()))?;
            Ok(Compiled::prompt(messages, &arguments, json.len()))
        };
        let payer = Payer::Tenant(tenant);
        let compiled =
            self.renderer.run(payer, compile).await?.map_err(|MessageError { index, error }| {
                Fault::from(error).within(format_args!("messages[{index}]"))
            })?;
        let rendered = compiled.texts((&self.renderer, payer), &[]).await;
        rendered.map_err(|fault| fault.within("messages")).map(drop)
    }

    /// Holds new templates against each other and against `trusted` ones, which are known not to conflict; answers the
    /// first that does.
    pub(super) async fn find_conflict(
        &self,
        tenant: TenantId,
        trusted: Vec<UriTemplate>,
        new: Arc<[UriTemplate]>,
    ) -> Result<Option<(usize, Conflict)>, Fault> {
        let compare = move || {
            let mut checker = ConflictChecker::default();
            for template in &trusted {
                checker.insert_unchecked(template);
            }
            let mut conflicts = new.iter().map(|template| checker.insert(template).err()).enumerate();
            Ok(conflicts.find_map(|(index, conflict)| Some((index, conflict?))))
        };
        Ok(self.renderer.run(Payer::Tenant(tenant), compare).await?)
    }
}
