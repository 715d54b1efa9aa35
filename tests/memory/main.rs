//! What caches count, compared with the resident memory that it takes, under the allocator that ships. In a process of
//! its own, since nothing else may allocate.

#![cfg(target_os = "linux")]
#![expect(clippy::print_stdout, reason = "the measurements are the purpose of the test")]
#![expect(clippy::unwrap_used, reason = "a failing test panics")]
#![expect(clippy::cast_precision_loss, reason = "for a ratio")]

use std::sync::Arc;

use bytes::Bytes;
use imbl::OrdMap;
use time::OffsetDateTime;
use waggle::cache::{MemoryBudget, WeighedCache};
use waggle::model::allocated::shared_bytes;
use waggle::model::content::ContentHash;
use waggle::model::definition::DefinitionKind;
use waggle::model::ids::ResourceUri;
use waggle::model::label::Labels;
use waggle::model::resource::{Definition, Part, PartKind, Resource};
use waggle::model::scope::Revision;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const MIB: usize = 1 << 20;
/// The bytes of a case.
const FILL: usize = 48 * MIB;

/// The resident memory of this process. See `proc_pid_status(5)`: kB are 1,024 bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<usize>().unwrap() * 1024
}

/// Fails unless what `fill` counts is within a fifth of what it takes. What it returns remains in memory, since later
/// cases would reuse what is free.
fn check<T>(case: &str, fill: impl FnOnce() -> (T, usize)) -> T {
    let before = resident();
    let (kept, counted) = fill();
    let grown = resident() - before;
    let ratio = grown as f64 / counted as f64;
    println!("{case}: counted {} KiB, grown {} KiB: {ratio:.2}", counted >> 10, grown >> 10);
    assert!((0.8..1.2).contains(&ratio), "{case}: {ratio:.2}");
    kept
}

/// A cache filled with contents of so many bytes.
fn contents(bytes: usize) -> (Arc<WeighedCache<u64, Bytes>>, usize) {
    let budget = MemoryBudget::new(1 << 30);
    let cache = WeighedCache::new(&budget, "contents", |_| false);
    for key in 0.. {
        let content = Bytes::from(vec![b'x'; bytes]);
        let heap = shared_bytes(&content);
        // Cloned, as by a look-up: only then there is a counter of owners.
        cache.insert(key, content.clone(), None, heap);
        if budget.used() > FILL {
            break;
        }
    }
    (cache, budget.used())
}

fn resource(number: usize) -> Resource {
    let text = |bytes: usize| "d".repeat(bytes);
    let part = Part {
        uri: None,
        mime_type: None,
        kind: PartKind::Text,
        hash: ContentHash::of(&number.to_be_bytes()),
        size: 1,
        meta: None,
    };
    Resource {
        uri: ResourceUri::parse(&format!("https://example.com/handbook/{number:07}")).unwrap(),
        definition: Definition {
            name: text(20),
            title: None,
            description: Some(text(number % 200)),
            mime_type: Some(text(10)),
            annotations: None,
            icons: None,
            meta: None,
        },
        labels: Labels::default(),
        parts: vec![part],
        source: None,
        revision: Revision(1),
        last_modified: OffsetDateTime::UNIX_EPOCH,
    }
}

#[test]
fn caches_count_what_they_take_within_a_fifth() {
    let _kept =
        [100, 1_000, 10_000, 100_000].map(|bytes| check(&format!("{bytes} bytes"), || contents(bytes)));
    let _keys = check("keys", || {
        let budget = MemoryBudget::new(1 << 30);
        let cache = WeighedCache::<[u64; 4], ()>::new(&budget, "keys", |()| false);
        for number in 0_u64.. {
            cache.insert([number; 4], (), None, 0);
            if budget.used() > FILL {
                break;
            }
        }
        let used = budget.used();
        (cache, used)
    });
    let _definitions = check("definitions", || {
        let all: OrdMap<ResourceUri, Arc<Resource>> =
            (0..100_000).map(resource).map(|one| (one.uri.clone(), Arc::new(one))).collect();
        let each = |one: &Arc<Resource>| one.memory() + 2 * size_of::<(ResourceUri, Arc<Resource>)>();
        let counted: usize = all.values().map(each).sum();
        (all, counted)
    });
}
