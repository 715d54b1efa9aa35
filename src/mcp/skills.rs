//! Answers the calls about skills (SEP-2640).

use bytes::Bytes;
use serde::Serialize;

use super::call::SkillsCall;
use super::call_handler::{CallContext, CallHandler, Dialect, envelope};
use super::definition::Definitions;
use super::modern::encode::Caching;
use super::pages::PagedList;
use super::result::{ResultMembers, append};
use super::results::{ResultForm, ResultSubject, SkillsSubject};
use super::skill_entry::SkillEntry;
use crate::model::fault::Fault;
use crate::model::ids::ResourceUri;

impl CallHandler {
    /// The encoded result of a call about skills, without the id of the request.
    pub(super) fn answer_skills(
        &self,
        context: &CallContext<'_>,
        call: &SkillsCall<'_>,
    ) -> Result<Bytes, Fault> {
        match call {
            SkillsCall::List { cursor } => self.list_skills(context, cursor.as_deref()),
            SkillsCall::Get { uri } => {
                let skill = context.view.skill(uri.as_str());
                let skill = skill.ok_or_else(|| Fault::UnknownUri { what: "skill", uri: uri.clone() })?;
                let subject = about_skills(context, SkillsSubject::Entry(uri.clone()));
                let key = context.key(subject, skill.revision, ResultForm::Method);
                if let Some(kept) = self.results.get(&key) {
                    return Ok(kept);
                }
                let members = ResultMembers::Skill { skill: SkillEntry::of(skill) };
                let result = self.encode_skills(context, members)?;
                self.results.keep(key, &result, context.caller.tenant);
                Ok(result)
            }
            SkillsCall::ReadDirectory { uri, cursor } => self.read_directory(context, uri, cursor.as_deref()),
        }
    }

    fn list_skills(&self, context: &CallContext<'_>, cursor: Option<&str>) -> Result<Bytes, Fault> {
        self.cached_page(
            context,
            list_of_skills(context, "mcp skills"),
            cursor,
            |page| about_skills(context, SkillsSubject::Page(page)),
            |after| {
                let page = self.catalog.skills(&context.view, after);
                let last = page.last().map(|last| last.root.as_str().to_owned());
                Ok((page, last))
            },
            |page, next_cursor| {
                let skills = page.items.iter().map(|skill| SkillEntry::of(skill)).collect();
                self.encode_skills(context, ResultMembers::Skills { skills, next_cursor })
            },
        )
    }

    fn read_directory(
        &self,
        context: &CallContext<'_>,
        uri: &ResourceUri,
        cursor: Option<&str>,
    ) -> Result<Bytes, Fault> {
        self.cached_page(
            context,
            list_of_skills(context, &format!("mcp directory {uri}")),
            cursor,
            |page| about_skills(context, SkillsSubject::Directory(uri.clone(), page)),
            |after| {
                let page = self.catalog.directory(&context.view, uri, after)?;
                let last = page.last().map(|last| last.uri().to_string());
                Ok((page, last))
            },
            |page, next_cursor| {
                let resources = Definitions(&page.items);
                self.encode_skills(context, ResultMembers::Resources { resources, next_cursor })
            },
        )
    }

    /// Encodes a result, which has cache hints in every revision.
    fn encode_skills(&self, context: &CallContext<'_>, members: ResultMembers<'_>) -> Result<Bytes, Fault> {
        if let Dialect::Modern { .. } = context.dialect {
            return context.encode(members);
        }
        let caching = envelope(context.caller, context.view.snapshot(), self.ttl).caching();
        let mut out = Vec::new();
        append(&mut out, &Hinted { members, caching })?;
        Ok(out.into())
    }
}

/// The subject of a result about skills.
fn about_skills(context: &CallContext<'_>, subject: SkillsSubject) -> ResultSubject {
    ResultSubject::Skills(Box::new(subject), context.caller.is_answered_as_anonymous())
}

/// A list that changes with the skills of the agent.
fn list_of_skills<'a>(context: &CallContext<'_>, name: &'a str) -> PagedList<'a> {
    let revision = context.view.snapshot().changed.lists.skills;
    PagedList { name, revision, form: ResultForm::Method }
}

/// A legacy result with cache hints.
#[derive(Serialize)]
struct Hinted<'a> {
    #[serde(flatten)]
    members: ResultMembers<'a>,
    #[serde(flatten)]
    caching: Caching,
}
