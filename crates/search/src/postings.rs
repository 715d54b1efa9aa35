//! The documents that contain one term, as differences of their numbers of seven bits a byte.

/// The number of a document.
pub(crate) type DocumentId = u32;

/// What a term contributes to the score of a document.
pub(crate) type Impact = u32;

/// The documents that contain a term in ascending order, each with what the term contributes.
#[derive(Debug, Default)]
pub(crate) struct Postings {
    bytes: Vec<u8>,
    last: DocumentId,
}

impl Postings {
    /// Adds a document behind the others; returns by how many bytes the memory grew.
    pub(crate) fn push(&mut self, document: DocumentId, impact: Impact) -> usize {
        let before = self.memory();
        let added = encoded_len(document - self.last, impact);
        // Terms are many and most of them rare, so lists grow by a quarter and not to the double.
        if self.bytes.capacity() - self.bytes.len() < added {
            self.bytes.reserve_exact((self.bytes.len() / 4).max(added).next_multiple_of(8));
        }
        encode(document - self.last, &mut self.bytes);
        encode(impact, &mut self.bytes);
        self.last = document;
        self.memory() - before
    }

    /// The documents in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (DocumentId, Impact)> {
        let mut rest = self.bytes.iter();
        let mut document = 0;
        std::iter::from_fn(move || {
            document += decode(&mut rest)?;
            Some((document, decode(&mut rest)?))
        })
    }

    /// The bytes of heap memory: allocators round up.
    pub(crate) fn memory(&self) -> usize {
        self.bytes.capacity().next_multiple_of(8) * 9 / 8
    }

    /// Releases spare memory.
    pub(crate) fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
    }
}

fn encoded_len(difference: u32, impact: u32) -> usize {
    let bits = |number: u32| (number | 1).ilog2() as usize / 7 + 1;
    bits(difference) + bits(impact)
}

fn encode(mut number: u32, bytes: &mut Vec<u8>) {
    loop {
        let [low, ..] = number.to_le_bytes();
        number >>= 7;
        if number == 0 {
            bytes.push(low & 0x7f);
            return;
        }
        bytes.push(low | 0x80);
    }
}

fn decode<'b>(bytes: &mut impl Iterator<Item = &'b u8>) -> Option<u32> {
    let (mut number, mut shift) = (0, 0);
    loop {
        let byte = *bytes.next()?;
        number |= u32::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
        shift += 7;
    }
}

#[cfg(test)]
mod tests {
    use super::Postings;

    #[test]
    fn postings_are_decoded_as_they_were_pushed() {
        let all = [(0, 1), (1, 127), (128, 128), (20_000, 16_384), (u32::MAX, u32::MAX)];
        let mut postings = Postings::default();
        let grown: usize = all.iter().map(|(document, impact)| postings.push(*document, *impact)).sum();
        assert_eq!(grown, postings.memory());
        assert_eq!(postings.iter().collect::<Vec<_>>(), all);
    }
}
