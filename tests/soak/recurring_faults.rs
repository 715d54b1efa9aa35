//! Recurring faults.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::Profile;
use crate::fleet::Fleet;
use crate::ledger::{Ledger, count};
use crate::support::cluster::Database;
use crate::support::proxy::Proxy;

/// Injects faults at intervals.
#[derive(Clone)]
pub(crate) struct RecurringFaults {
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) database: Database,
    /// Proxies between the last replica and its database: of the LISTEN connection, and of the pool.
    pub(crate) proxies: Arc<[Proxy; 2]>,
}

impl RecurringFaults {
    /// Starts the tasks. All faults have ended when they have.
    pub(crate) fn begin(self, profile: Profile, stop: &CancellationToken) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        tasks.spawn(self.clone().kill(profile.kill, stop.clone()));
        tasks.spawn(self.clone().cut(profile.cut, stop.clone()));
        tasks.spawn(self.swallow(stop.clone()));
        tasks
    }

    async fn kill(self, every: Duration, stop: CancellationToken) {
        for victim in (0..self.fleet.len()).cycle() {
            if stop.run_until_cancelled(tokio::time::sleep(every)).await.is_none() {
                return;
            }
            self.fleet.kill(victim).await;
            count(&self.ledger.kills);
        }
    }

    async fn cut(self, every: Duration, stop: CancellationToken) {
        let all = "select pg_terminate_backend(pid) from pg_stat_activity \
                   where datname = current_database() and pid <> pg_backend_pid()";
        while stop.run_until_cancelled(tokio::time::sleep(every)).await.is_some() {
            self.database.execute(all).await;
            count(&self.ledger.cuts);
        }
    }

    async fn swallow(self, stop: CancellationToken) {
        let millis = |range| Duration::from_millis(rand::random_range(range));
        for proxy in self.proxies.iter().cycle() {
            if stop.run_until_cancelled(tokio::time::sleep(millis(500..2_500))).await.is_none() {
                return;
            }
            proxy.swallow(true);
            tokio::time::sleep(millis(50..1_500)).await;
            proxy.swallow(false);
            count(&self.ledger.swallows);
        }
    }
}
