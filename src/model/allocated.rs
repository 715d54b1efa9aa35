//! How much memory an allocation takes.

const WORD: usize = 8;
/// Allocations above this size have memory of their own, in pages of the operating system.
const MAX_IN_CLASSES: usize = 128 << 10;
const OS_PAGE: usize = 4 << 10;

/// The memory of an entry in a hash table: with its byte of control data, and tables two thirds full on average.
#[must_use]
pub const fn in_table<T>() -> usize {
    (size_of::<T>() + 1) * 3 / 2
}

/// The memory that an allocation of so many bytes takes: its size class in mimalloc, of which four double the size, less the
/// pages of the operating system at its end that are never touched, and an eighth of that for pages that are partly free
/// while entries come and go.
#[must_use]
pub const fn allocated(bytes: usize) -> usize {
    if bytes == 0 {
        return 0;
    }
    let class = if bytes > MAX_IN_CLASSES {
        bytes.next_multiple_of(OS_PAGE)
    } else {
        let words = bytes.div_ceil(WORD);
        let step = if words <= 8 { 2 } else { 1 << ((words - 1).ilog2() - 2) };
        words.next_multiple_of(step) * WORD
    };
    // One page more: an allocation need not begin where a page does.
    let touched = bytes.next_multiple_of(OS_PAGE) + OS_PAGE;
    let resident = if class < touched { class } else { touched };
    resident + resident / 8
}

/// The memory of bytes that are shared: those of one allocation, and the counter of its owners.
pub fn shared_bytes(bytes: &bytes::Bytes) -> usize {
    const OWNERS: usize = 24;
    if bytes.is_empty() { 0 } else { allocated(bytes.len()) + allocated(OWNERS) }
}

/// The memory of text or other items behind an `Arc`, whose counters are beside them.
#[must_use]
pub const fn behind_arc(bytes: usize) -> usize {
    allocated(bytes + 2 * WORD)
}

/// The memory of a hash table with room for so many entries.
#[must_use]
pub const fn table<T>(capacity: usize) -> usize {
    // A table is at most seven eighths full.
    let buckets = if capacity == 0 { 0 } else { (capacity * 8 / 7).next_power_of_two() };
    allocated(buckets * (size_of::<T>() + 1))
}

/// The memory of texts, each in an allocation of its own.
pub fn texts<'t>(texts: impl IntoIterator<Item = &'t str>) -> usize {
    texts.into_iter().map(|text| allocated(text.len())).sum()
}

#[cfg(test)]
mod tests {
    use super::allocated;

    #[test]
    fn sizes_are_rounded_up_to_size_classes() {
        let sizes = [0, 1, 16, 17, 64, 65, 129, 160, 161, 1_025, 100_000, (128 << 10) + 1];
        assert_eq!(
            sizes.map(allocated),
            [0, 16, 16, 32, 64, 80, 160, 160, 192, 1_280, 104 << 10, (128 << 10) + (4 << 10)]
                .map(|class| class * 9 / 8)
        );
    }
}
