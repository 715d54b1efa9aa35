//! `tools/call`: each tool by the use case of its method.

use std::borrow::Cow;
use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::value::RawValue;

use super::arguments::{FetchArguments, ListArguments, PromptArguments, ReadArguments, SearchArguments};
use super::blocks::Block;
use super::object::ObjectPage;
use super::{Tool, is_shown};
use crate::mcp::call::strings;
use crate::mcp::call_handler::{CallContext, CallHandler};
use crate::mcp::pages::PagedList;
use crate::mcp::refusal::Refusal;
use crate::mcp::result::ResultMembers;
use crate::mcp::results::ResultSubject;
use crate::model::call::{List, ListPage};
use crate::model::fault::Fault;
use crate::model::prompt::PromptName;
use crate::model::tool::FixedTool;

impl CallContext<'_> {
    /// A result that is shown as an object.
    pub(in crate::mcp) fn encode_object(&self, object: &RawValue) -> Result<Bytes, Fault> {
        let blocks = [Block::Text(Cow::Borrowed(object.get()))];
        let structured = self.dialect.tool_members().have_structured_content();
        let structured_content = structured.then_some(object);
        self.encode(ResultMembers::Blocks { content: &blocks, structured_content, is_error: false })
    }
}

impl CallHandler {
    /// The result of `tools/call`, whose arguments are JSON as sent. A fault that a model can act on is a result with
    /// `isError`.
    pub(in crate::mcp) async fn call_tool(
        &self,
        context: &CallContext<'_>,
        name: &str,
        arguments: &str,
    ) -> Result<Bytes, Refusal> {
        let Some(tool) = Tool::find(&context.view, name) else {
            return Err(Tool::refused(&context.view, name));
        };
        if !arguments.starts_with('{') {
            return Err(Fault::invalid_params("params.arguments must be an object").into());
        }
        let refusal = match self.run_tool(context, &tool, arguments).await {
            Err(refusal) if is_shown(&tool, &refusal.fault) => refusal,
            answered => return answered,
        };
        let text = format!("{}: {}", refusal.fault.name(), refusal.fault);
        let blocks = [Block::Text(Cow::Owned(text))];
        let members = ResultMembers::Blocks { content: &blocks, structured_content: None, is_error: true };
        Err(Refusal { result: Some(context.encode(members)?), ..refusal })
    }

    async fn run_tool(&self, context: &CallContext<'_>, tool: &Tool, json: &str) -> Result<Bytes, Refusal> {
        match tool {
            Tool::Fixed(FixedTool::Search) => {
                let SearchArguments { query } = SearchArguments::read(json)?;
                Ok(self.search(context, &query).await?)
            }
            Tool::Fixed(FixedTool::Fetch) => {
                let FetchArguments { id } = FetchArguments::read(json)?;
                self.fetch(context, &id).await
            }
            Tool::Fixed(FixedTool::ReadResource) => {
                let ReadArguments { uri, offset } = ReadArguments::read(json)?;
                let read = self.read(context, &uri, context.tool_form(offset)).await;
                read.map_err(|fault| Refusal::of_read(&context.view, fault))
            }
            Tool::Fixed(FixedTool::ListResources) => {
                let ListArguments { cursor } = ListArguments::read(json)?;
                Ok(self.object(context, List::Resources, cursor.as_deref())?)
            }
            Tool::Fixed(FixedTool::ListPrompts) => {
                let ListArguments { cursor } = ListArguments::read(json)?;
                Ok(self.object(context, List::Prompts, cursor.as_deref())?)
            }
            Tool::Fixed(FixedTool::GetPrompt) => {
                let PromptArguments { name, arguments } = PromptArguments::read(json)?;
                self.prompt(context, &name, arguments).await
            }
            Tool::Prompt(prompt) => self.prompt(context, &prompt.name, strings("arguments", json)?).await,
        }
    }

    async fn prompt(
        &self,
        context: &CallContext<'_>,
        name: &PromptName,
        arguments: BTreeMap<String, String>,
    ) -> Result<Bytes, Refusal> {
        let got = self.get_prompt(context, name, &arguments.into(), context.tool_form(0)).await;
        got.map_err(|fault| Refusal::of_prompt(&context.view, name.as_str(), fault))
    }

    /// A page of `list_resources` or `list_prompts`.
    fn object(&self, context: &CallContext<'_>, list: List, cursor: Option<&str>) -> Result<Bytes, Fault> {
        let changed = &context.view.snapshot().changed.lists;
        let (name, revision) = match list {
            List::Prompts => ("mcp list_prompts", changed.prompts),
            List::Resources | List::Templates => {
                ("mcp list_resources", changed.resources.max(changed.templates))
            }
        };
        self.cached_page(
            context,
            PagedList { name, revision, form: context.tool_form(0) },
            cursor,
            |page| ResultSubject::Page(list, Box::new(page)),
            |after| {
                let mut page = ObjectPage::new(self.catalog.page_size(), self.tool_result_bytes);
                let after = after.map(|after| after.split_at(1));
                match list {
                    List::Prompts => self.add(&mut page, context, List::Prompts, after)?,
                    List::Resources | List::Templates => {
                        self.add(&mut page, context, List::Resources, after)?;
                        self.add(&mut page, context, List::Templates, after)?;
                    }
                }
                let end = page.next().map(str::to_owned);
                Ok((page, end))
            },
            |page, next| context.encode_object(&page.into_json(next)?),
        )
    }

    /// Adds the definitions of a list after a position, which has the tag of its list in front, as far as they fit.
    fn add(
        &self,
        page: &mut ObjectPage,
        context: &CallContext<'_>,
        list: List,
        after: Option<(&str, &str)>,
    ) -> Result<(), Fault> {
        let (member, tag) = match list {
            List::Resources => ("resources", "r"),
            List::Templates => ("resourceTemplates", "t"),
            List::Prompts => ("prompts", "p"),
        };
        page.list(member);
        let after = match after {
            Some((at, key)) if at == tag => Some(key),
            // A position among the templates is after all resources.
            Some(_) if list == List::Resources => return Ok(()),
            _ => None,
        };
        let listed = self.catalog.list(&context.view, list, after);
        match &listed {
            ListPage::Resources(listed) => {
                page.add_all(&listed.items, |resource| format!("{tag}{}", resource.uri()))?;
            }
            ListPage::Templates(listed) => {
                page.add_all(&listed.items, |template| format!("{tag}{}", template.uri_template.as_str()))?;
            }
            ListPage::Prompts(listed) => {
                page.add_all(&listed.items, |prompt| format!("{tag}{}", prompt.name))?;
            }
        }
        if listed.last().is_some() {
            page.ends_early();
        }
        Ok(())
    }
}
