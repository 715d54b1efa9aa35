//! A manifest: an agent's whole catalog, as sent and returned.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::form::{ContentLimits, Form};
use crate::admin::mounts::{ExportedMount, MountInput};
use crate::admin::prompts::{PromptInput, PromptView};
use crate::admin::resources::{ResourceInput, ResourceView};
use crate::admin::skills::{SkillInput, SkillView};
use crate::admin::templates::{TemplateInput, TemplateView};
use crate::catalog::manifest::{FullManifest, ManifestEntry, NewManifest};
use crate::model::content::ContentHash;
use crate::model::fault::Fault;
use crate::model::ids::Slug;
use crate::model::json::Object;
use crate::model::mount::Mount;
use crate::model::prompt::Prompt;
use crate::model::resource::Resource;
use crate::model::skill::Skill;
use crate::model::template::ResourceTemplate;

/// The version of the format.
const VERSION: &str = "waggle/v1";

/// A manifest as sent.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = NewManifest)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ManifestInput {
    /// `waggle/v1`.
    api_version: String,
    /// The id of the agent. Must equal the agent of the path if both are set.
    pub agent: Option<String>,
    #[serde(default)]
    #[schema(value_type = Vec<ResourceInput>)]
    resources: Vec<Object<ResourceInput>>,
    #[serde(default)]
    #[schema(value_type = Vec<TemplateInput>)]
    templates: Vec<Object<TemplateInput>>,
    #[serde(default)]
    #[schema(value_type = Vec<PromptInput>)]
    prompts: Vec<Object<PromptInput>>,
    /// Without it the skills stay as they are.
    #[schema(value_type = Option<Vec<SkillInput>>)]
    skills: Option<Vec<Object<SkillInput>>>,
    /// Without it the mounts stay as they are.
    #[schema(value_type = Option<Vec<MountInput>>)]
    mounts: Option<Vec<Object<MountInput>>>,
}

impl ManifestInput {
    /// Validates everything about each definition that the types do not guarantee, except that templates and messages
    /// compile.
    ///
    /// # Errors
    /// [`Fault::InvalidParams`], with the path of the member.
    pub fn check(self, limits: ContentLimits) -> Result<NewManifest, Fault> {
        if self.api_version != VERSION {
            return Err(Fault::invalid_params(format!("apiVersion must be {VERSION}")));
        }
        Ok(NewManifest {
            resources: Some(checked::<Resource>(self.resources, limits)?),
            templates: Some(checked::<ResourceTemplate>(self.templates, limits)?),
            prompts: Some(checked::<Prompt>(self.prompts, limits)?),
            skills: self.skills.map(|skills| checked::<Skill>(skills, limits)).transpose()?,
            mounts: self.mounts.map(|mounts| checked::<Mount>(mounts, limits)).transpose()?,
        })
    }
}

fn checked<K: Form>(inputs: Vec<Object<K::Input>>, limits: ContentLimits) -> Result<Vec<K::New>, Fault> {
    let checked = inputs.into_iter().enumerate().map(|(index, Object(input))| {
        let name = K::sent_key(&input).unwrap_or_default().to_owned();
        let wrong = |fault: Fault| match fault {
            Fault::PayloadTooLarge(most) => {
                Fault::invalid_params(format!("its contents exceed {most} bytes"))
            }
            other => other,
        };
        let entry = ManifestEntry { list: K::LIST, index, name: &name };
        check_one::<K>(input, limits).map_err(|fault| wrong(fault).within(entry))
    });
    checked.collect()
}

fn check_one<K: Form>(input: K::Input, limits: ContentLimits) -> Result<K::New, Fault> {
    let missing = || Fault::invalid_params(format!("{} is missing", K::KEY));
    let key = K::parse_key(K::sent_key(&input).ok_or_else(missing)?)?;
    K::validate(input, key, limits)
}

/// A manifest as returned, in the format of `PUT`.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Manifest)]
#[serde(rename_all = "camelCase")]
pub struct ManifestView {
    api_version: &'static str,
    #[schema(value_type = String)]
    agent: Slug,
    resources: Vec<ResourceView>,
    templates: Vec<TemplateView>,
    prompts: Vec<PromptView>,
    skills: Vec<SkillView>,
    mounts: Vec<ExportedMount>,
}

impl ManifestView {
    /// With everything, in the format of `PUT`.
    ///
    /// # Errors
    /// [`Fault::Internal`] if a stored definition cannot be parsed.
    pub fn whole(agent: Slug, manifest: FullManifest) -> Result<Self, Fault> {
        let FullManifest { definitions, bytes, .. } = manifest;
        Ok(Self {
            api_version: VERSION,
            agent,
            resources: views(definitions.resources, &bytes)?,
            templates: views(definitions.templates, &bytes)?,
            prompts: views(definitions.prompts, &bytes)?,
            skills: views(definitions.skills, &bytes)?,
            mounts: views(definitions.mounts, &bytes)?,
        })
    }
}

fn views<K: Form>(stored: Vec<K>, bytes: &BTreeMap<ContentHash, Bytes>) -> Result<Vec<K::Exported>, Fault> {
    stored.into_iter().map(|definition| definition.exported(bytes)).collect()
}
