//! Answers the calls about skills (SEP-2640).

use bytes::Bytes;
use serde::Serialize;

use super::call::SkillsCall;
use super::call_handler::{CallContext, CallHandler, Dialect, envelope, purpose};
use super::definition::Definitions;
use super::modern::encode::Caching;
use super::result::{ResultMembers, append};
use super::results::{ResultForm, ResultSubject, SkillsSubject};
use super::skill_entry::SkillEntry;
use crate::model::fault::Fault;
use crate::model::ids::ResourceUri;
use crate::model::scope::Revision;

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
                self.kept(context, SkillsSubject::Entry(uri.clone()), skill.revision, |encode| {
                    Ok((encode(ResultMembers::Skill { skill: SkillEntry::of(skill) })?, false))
                })
            }
            SkillsCall::ReadDirectory { uri, cursor } => self.read_directory(context, uri, cursor.as_deref()),
        }
    }

    fn list_skills(&self, context: &CallContext<'_>, cursor: Option<&str>) -> Result<Bytes, Fault> {
        let agent = context.caller.agent.0;
        let purpose = purpose("mcp skills", &context.caller.labels());
        let after = cursor.map(|cursor| self.seal.open(&purpose, agent, cursor)).transpose()?;
        let subject = SkillsSubject::Page(context.page_subject(after.as_deref()));
        let revision = context.view.snapshot().changed.lists.skills;
        self.kept(context, subject, revision, |encode| {
            let page = self.catalog.skills(&context.view, after.as_deref());
            let next = page.last().map(|last| self.seal.seal(&purpose, agent, last.root.as_str()));
            let skills = page.items.iter().map(|skill| SkillEntry::of(skill)).collect();
            Ok((encode(ResultMembers::Skills { skills, next_cursor: next.as_deref() })?, next.is_some()))
        })
    }

    fn read_directory(
        &self,
        context: &CallContext<'_>,
        uri: &ResourceUri,
        cursor: Option<&str>,
    ) -> Result<Bytes, Fault> {
        let agent = context.caller.agent.0;
        let name = format!("mcp directory {uri}");
        let purpose = purpose(&name, &context.caller.labels());
        let after = cursor.map(|cursor| self.seal.open(&purpose, agent, cursor)).transpose()?;
        let subject = SkillsSubject::Directory(uri.clone(), context.page_subject(after.as_deref()));
        let revision = context.view.snapshot().changed.lists.skills;
        self.kept(context, subject, revision, |encode| {
            let page = self.catalog.directory(&context.view, uri, after.as_deref())?;
            let next = page.last().map(|last| self.seal.seal(&purpose, agent, &last.uri().to_string()));
            let resources = Definitions(&page.items);
            Ok((
                encode(ResultMembers::Resources { resources, next_cursor: next.as_deref() })?,
                next.is_some(),
            ))
        })
    }

    /// The result that is cached under a subject, or that `make` passes to the encoder; it says whether that has a cursor.
    fn kept(
        &self,
        context: &CallContext<'_>,
        subject: SkillsSubject,
        revision: Revision,
        make: impl FnOnce(&dyn Fn(ResultMembers<'_>) -> Result<Bytes, Fault>) -> Result<(Bytes, bool), Fault>,
    ) -> Result<Bytes, Fault> {
        let subject = ResultSubject::Skills(Box::new(subject), context.caller.is_answered_as_anybody());
        let key = context.key(subject, revision, ResultForm::Method);
        self.results.page(key, (&context.caller.labels(), context.caller.tenant), || {
            make(&|members| self.encode_skills(context, members))
        })
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

/// A legacy result with cache hints.
#[derive(Serialize)]
struct Hinted<'a> {
    #[serde(flatten)]
    members: ResultMembers<'a>,
    #[serde(flatten)]
    caching: Caching,
}
