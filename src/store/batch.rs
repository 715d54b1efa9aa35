//! Splits rows into batches that one statement can carry.

/// Maximum number of rows per statement.
const MAX_ROWS: usize = 5_000;
/// Maximum size of a statement in bytes, except for a single larger row.
const MAX_BYTES: usize = 8 << 20;

/// Splits rows into batches in order; `size` returns the size of a row in bytes.
pub(super) fn batches<T>(rows: &[T], size: impl Fn(&T) -> usize) -> impl Iterator<Item = &[T]> {
    let mut rest = rows;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = rest.iter().take(MAX_ROWS).take_while(|row| {
            bytes += size(row);
            bytes <= MAX_BYTES
        });
        let (batch, others) = rest.split_at(fits.count().max(1).min(rest.len()));
        rest = others;
        (!batch.is_empty()).then_some(batch)
    })
}

#[cfg(test)]
mod tests {
    use super::{MAX_BYTES, MAX_ROWS, batches};

    #[test]
    fn batches_are_bounded_in_rows_and_bytes() {
        let lengths = |sizes: &[usize]| batches(sizes, |size| *size).map(<[_]>::len).collect::<Vec<_>>();
        assert_eq!(lengths(&[]), [0; 0]);
        assert_eq!(lengths(&vec![1; 2 * MAX_ROWS + 1]), [MAX_ROWS, MAX_ROWS, 1]);
        assert_eq!(lengths(&[MAX_BYTES / 2; 5]), [2, 2, 1]);
        assert_eq!(lengths(&[2 * MAX_BYTES, 1, 2 * MAX_BYTES, 2 * MAX_BYTES]), [1, 1, 1, 1]);
    }
}
