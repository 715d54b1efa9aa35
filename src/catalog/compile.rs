//! Compiling bodies and messages when they are first used.

use std::sync::Arc;

use bytes::Bytes;

use super::Catalog;
use super::compiled::{CompilationKey, Compiled, Source};
use super::render::RenderError;
use crate::identity::grant::Caller;
use crate::model::content::ContentHash;
use crate::model::fault::Fault;
use crate::model::scope::Revision;

impl Catalog {
    /// Compiles the contents of a hash, or returns the cached compilation; `None` if the contents are purged.
    pub(super) async fn compiled(
        &self,
        caller: &Caller,
        source: Source,
        revision: Revision,
        address: ContentHash,
        compile: impl FnOnce(Bytes) -> Result<Compiled, RenderError> + Send + 'static,
    ) -> Result<Option<Arc<Compiled>>, Fault> {
        let key = (caller.agent, source, revision, address);
        if let Some(compiled) = self.compilations.get(&key) {
            return Ok(Some(compiled));
        }
        // Boxed, so that the future of a render from the cache is small to move.
        Box::pin(self.compile(caller, key, address, compile)).await
    }

    async fn compile(
        &self,
        caller: &Caller,
        key: CompilationKey,
        address: ContentHash,
        compile: impl FnOnce(Bytes) -> Result<Compiled, RenderError> + Send + 'static,
    ) -> Result<Option<Arc<Compiled>>, Fault> {
        let kept = self.contents.get(&(caller.agent, address));
        let bytes = match kept {
            Some(bytes) => Some(bytes),
            None => self.load_contents(caller, &[address]).await?.remove(&address),
        };
        let Some(bytes) = bytes else { return Ok(None) };
        let compiled = self.renderer.run(caller.payer(), move || compile(bytes)).await.map_err(unreadable)?;
        let compiled = Arc::new(compiled);
        self.compilations.insert(key, Arc::clone(&compiled), caller.tenant);
        Ok(Some(compiled))
    }
}

/// Registered sources were checked, so that a failure to compile is a bug.
fn unreadable(error: RenderError) -> Fault {
    match error {
        RenderError::Busy | RenderError::Late => error.into(),
        bug => Fault::Internal(format!("registered source does not compile: {bug}")),
    }
}
