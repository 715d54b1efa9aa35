//! `tools/list`: the fixed tools of the enabled sets, then the tools of prompts in byte order of their names.

use bytes::Bytes;

use super::{ListedTool, Tool};
use crate::catalog::snapshot::view::View;
use crate::mcp::call_handler::{CallContext, CallHandler};
use crate::mcp::pages::PagedList;
use crate::mcp::result::ResultMembers;
use crate::mcp::results::ResultSubject;
use crate::model::call::{List, ListPage};
use crate::model::fault::Fault;
use crate::model::tool::{FixedTool, ToolSet, can_be_tool};

/// A position in the list.
enum Position<'a> {
    /// The beginning.
    Start,
    /// After a fixed tool.
    Fixed(FixedTool),
    /// After the tool of a prompt.
    Prompt(&'a str),
}

impl<'a> Position<'a> {
    fn read(text: Option<&'a str>) -> Self {
        match text.map(|text| text.split_at(1)) {
            Some(("p", name)) => Self::Prompt(name),
            Some((_, name)) => FixedTool::parse(name).map_or(Self::Start, Self::Fixed),
            None => Self::Start,
        }
    }

    fn of(tool: &Tool) -> String {
        match tool {
            Tool::Fixed(fixed) => format!("f{}", fixed.name()),
            Tool::Prompt(prompt) => format!("p{}", prompt.name),
        }
    }
}

impl CallHandler {
    /// The result of `tools/list`.
    pub(in crate::mcp) fn list_tools(
        &self,
        context: &CallContext<'_>,
        cursor: Option<&str>,
    ) -> Result<Bytes, Fault> {
        let changed = &context.view.snapshot().changed;
        let revision = changed.description.max(changed.lists.prompts);
        self.cached_page(
            context,
            PagedList { name: "mcp tools", revision, form: context.tool_form(0) },
            cursor,
            |page| ResultSubject::Tools(Box::new(page)),
            |after| {
                let (tools, more) = self.page_of_tools(&context.view, &Position::read(after));
                let last = tools.last().filter(|_| more).map(Position::of);
                Ok((tools, last))
            },
            |tools, next_cursor| {
                let members = context.dialect.tool_members();
                let listed = tools.iter().map(|tool| ListedTool::of(tool, members));
                let tools = listed.collect::<Result<_, _>>()?;
                context.encode(ResultMembers::Tools { tools, next_cursor })
            },
        )
    }

    /// A page of tools, and whether there are more.
    fn page_of_tools(&self, view: &View, after: &Position<'_>) -> (Vec<Tool>, bool) {
        let (sets, size) = (view.snapshot().description.tools, self.catalog.page_size());
        let mut tools: Vec<_> = match after {
            Position::Prompt(_) => Vec::new(),
            Position::Start | Position::Fixed(_) => {
                let is_after = |tool: &FixedTool| match after {
                    Position::Fixed(last) => *tool as u8 > *last as u8,
                    _ => true,
                };
                let fixed = FixedTool::ALL.into_iter().filter(is_after);
                fixed.filter(|tool| sets.contains(tool.set())).map(Tool::Fixed).collect()
            }
        };
        let mut last = match after {
            Position::Prompt(name) => Some((*name).to_owned()),
            Position::Start | Position::Fixed(_) => None,
        };
        let mut more = sets.contains(ToolSet::PromptTools);
        // One more than fits, to know whether there is one.
        while more && tools.len() <= size {
            let page = self.catalog.list(view, List::Prompts, last.as_deref());
            last = page.last();
            more = last.is_some();
            if let ListPage::Prompts(page) = page {
                let prompts = page.items.into_iter().filter(|prompt| can_be_tool(prompt.name.as_str()));
                tools.extend(prompts.map(Tool::Prompt));
            }
        }
        let more = tools.len() > size;
        tools.truncate(size);
        (tools, more)
    }
}
