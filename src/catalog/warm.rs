//! After a start, loads the agents that were used most recently, before they are requested.

use super::Catalog;
use crate::identity::Identity;
use crate::model::caller::Payer;
use crate::model::fault::Fault;
use crate::store::usage::UsedAgent;

impl Catalog {
    /// Loads at most `most` agents, those used last, one at a time and only while at least half of the capacity for loads is
    /// idle. Returns how many are loaded.
    ///
    /// # Errors
    /// [`Fault::StorageUnavailable`] if the database does not answer.
    pub async fn warm(&self, identity: &Identity, most: usize) -> Result<usize, Fault> {
        // From a sweep on, changes reach what is loaded.
        self.loader.sweep().await?;
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let agents = self.store.agents_used_last(most).await?;
        let mut loaded = 0;
        for UsedAgent { agent, slug } in agents {
            self.loader.idle().await;
            identity.load_agent(&slug).await?;
            match self.snapshot_of(Payer::Gateway, agent.tenant, agent.uid).await {
                Ok(_) => loaded += 1,
                // It was deleted meanwhile.
                Err(Fault::Forbidden) => {}
                Err(fault) => return Err(fault),
            }
        }
        Ok(loaded)
    }
}
