//! How much one statement carries.

/// Rows of one statement.
const MOST_ROWS: usize = 5_000;
/// Bytes of one statement, but for a single row that has more.
const MOST_BYTES: usize = 8 << 20;

/// Rows in their order, as many at once as one statement carries; `size` says how many bytes a row has.
pub(super) fn batches<T>(rows: &[T], size: impl Fn(&T) -> usize) -> impl Iterator<Item = &[T]> {
    let mut rest = rows;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = rest.iter().take(MOST_ROWS).take_while(|row| {
            bytes += size(row);
            bytes <= MOST_BYTES
        });
        let (batch, others) = rest.split_at(fits.count().max(1).min(rest.len()));
        rest = others;
        (!batch.is_empty()).then_some(batch)
    })
}

#[cfg(test)]
mod tests {
    use super::{MOST_BYTES, MOST_ROWS, batches};

    #[test]
    fn a_statement_carries_bounded_rows_and_bytes_and_always_one_row() {
        let lengths = |sizes: &[usize]| batches(sizes, |size| *size).map(<[_]>::len).collect::<Vec<_>>();
        assert_eq!(lengths(&[]), [0; 0]);
        assert_eq!(lengths(&vec![1; 2 * MOST_ROWS + 1]), [MOST_ROWS, MOST_ROWS, 1]);
        assert_eq!(lengths(&[MOST_BYTES / 2; 5]), [2, 2, 1]);
        assert_eq!(lengths(&[2 * MOST_BYTES, 1, 2 * MOST_BYTES, 2 * MOST_BYTES]), [1, 1, 1, 1]);
    }
}
